"""Bind the handlers to their subjects; with `broker`, the only FastStream code of the API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from faststream.nats import NatsRouter

from chatlane.api.endpoint import ApiRequest
from chatlane_schemas.topology.permissions import REPLY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from faststream.nats import NatsMessage
    from nats.aio.msg import Msg

    from chatlane.api.endpoint import Handle

# The queue group: any one router answers a request.
QUEUE: Final = "routers"
# A claim waits for others to share its transaction, so claims must run concurrently.
CONCURRENT: Final = 256
# For one method, beyond those in progress; a caller whose request is dropped repeats it with the
# same id.
PENDING_REQUESTS: Final = 2048
PENDING_BYTES: Final = 8 * 1024 * 1024
# Subjects of callers that wait for an answer: an inbox, or the subject that the server substitutes
# for it in a request from another account.
REPLIES: Final = ("_INBOX", f"{REPLY_PREFIX}.")
PRINCIPAL_TOKEN: Final = 3
_CORRELATION: Final = re.compile(r"[A-Za-z0-9._:-]{0,128}")


def build_router(handlers: Mapping[str, Handle]) -> NatsRouter:
    """Return the routes of the API, for the broker of `build_broker`.

    Each request is bound in the three forms that operators, workers and front ends use. Principal,
    agent, platform and account may be any tokens here: NATS permissions pin them. Turn requests of
    workers are answered in `turn_responder`.

    Args:
        handlers: The handler of each request, by noun and verb such as `session.get`.
    """
    router = NatsRouter()
    for method, handle in handlers.items():
        _bind(router, method, handle)
    return router


def _bind(router: NatsRouter, method: str, handle: Handle) -> None:
    async def answered(asked: ApiRequest | None) -> bytes | None:
        return None if asked is None else await handle(asked)

    # FastStream needs a millisecond for each function that it wraps, so the subjects share one.
    for subject in (method, f"{method}.*", f"{method}.*.*"):
        subscriber = router.subscriber(
            f"chat.v1.api.*.{subject}",
            queue=QUEUE,
            parser=_parsed_for_an_answer,
            decoder=_asked,
            max_workers=CONCURRENT,
            pending_msgs_limit=PENDING_REQUESTS,
            pending_bytes_limit=PENDING_BYTES,
            title=subject,
        )
        answered = subscriber(answered)


async def _asked(message: NatsMessage) -> ApiRequest | None:
    """Parse the tokens of the subject and leave the body undecoded for our own codec.

    Return None if the message has no reply subject. Only a JetStream consumer that delivers here
    sends such a message: permissions do not check the reply subject of that request to JetStream,
    so its subject does not say who made it.
    """
    if not message.reply_to:
        return None
    principal, _, _, *narrower = message.raw_message.subject.split(".")[PRINCIPAL_TOKEN:]
    match narrower:
        case [agent]:
            return ApiRequest(principal, message.body, agent=agent)
        case [platform, account]:
            return ApiRequest(principal, message.body, account=(platform, account))
        case _:
            return ApiRequest(principal, message.body)


async def _parsed_for_an_answer(
    message: Msg, parse: Callable[[Msg], Awaitable[NatsMessage]]
) -> NatsMessage:
    """Drop a reply subject and a correlation id that must not be used in an answer.

    Without the check of the reply subject, a caller could make a router publish an answer where
    only routers may. A long correlation id would become a header of the answer, and an answer over
    `max_payload` closes our connection for good.
    """
    parsed = await parse(message)
    if not parsed.reply_to.startswith(REPLIES):
        parsed.reply_to = ""
    if _CORRELATION.fullmatch(parsed.correlation_id) is None:
        parsed.correlation_id = ""
    return parsed
