"""Binds the handlers to their subjects; the only module of the API that knows FastStream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from faststream.nats import NatsRouter

from chatlane.api.asked import Asked
from chatlane_schemas.permissions import REPLY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Protocol

    from faststream.nats import NatsMessage
    from nats.aio.msg import Msg

    from chatlane.api.asked import Handle

    class Handlers(Protocol):
        """Answers some of the requests."""

        def requests(self) -> Mapping[str, Handle]:
            """Return what answers each request, by noun and verb such as `session.get`."""


# One router answers each request, any of them will do.
QUEUE: Final = "routers"
# A claim waits for the others of its transaction: one at a time would undo the sharing.
CONCURRENT: Final = 256
# Of one method, besides those in work; who asks in vain asks again, with the same id.
PENDING_REQUESTS: Final = 2048
PENDING_BYTES: Final = 8 * 1024 * 1024
# Where somebody waits for an answer: an inbox, or what the server puts in its place for a request
# of another account.
REPLIES: Final = ("_INBOX", f"{REPLY_PREFIX}.")
PRINCIPAL_TOKEN: Final = 3
_CORRELATION: Final = re.compile(r"[A-Za-z0-9._:-]{0,128}")


def build_router(handlers: Iterable[Handlers]) -> NatsRouter:
    """Return the routes of the API, for a broker with `apply_types=False` and `logger=None`.

    Principal, agent, platform and account are any tokens here: NATS permissions pin them. What
    workers ask about their turns is answered in `direct`.
    """
    router = NatsRouter()
    for one in handlers:
        for method, handle in one.requests().items():
            _bind_request(router, method, handle)
    return router


def _bind_request(router: NatsRouter, method: str, handle: Handle) -> None:
    """Bind a request as operators make it, as workers do, and as who acts for people does."""
    _bind(router, method, handle)
    _bind(router, f"{method}.*", handle)
    _bind(router, f"{method}.*.*", handle)


def _bind(router: NatsRouter, method: str, handle: Handle) -> None:
    subscriber = router.subscriber(
        f"chat.v1.api.*.{method}",
        queue=QUEUE,
        parser=_parsed_for_an_answer,
        decoder=_asked,
        max_workers=CONCURRENT,
        pending_msgs_limit=PENDING_REQUESTS,
        pending_bytes_limit=PENDING_BYTES,
        title=method,
    )

    async def answered(asked: Asked | None) -> bytes | None:
        return None if asked is None else await handle(asked)

    subscriber(answered)


async def _asked(message: NatsMessage) -> Asked | None:
    """Leave the body as it is: our codec decodes, and answers what it cannot decode.

    None where nobody waits for an answer. Nobody asks so but a JetStream that was told to deliver
    a message here: no permission looks at the reply subject of what it is asked, so its subject
    does not say who made it.
    """
    if not message.reply_to:
        return None
    principal, _, _, *narrower = message.raw_message.subject.split(".")[PRINCIPAL_TOKEN:]
    match narrower:
        case [agent]:
            return Asked(principal, message.body, agent=agent)
        case [platform, account]:
            return Asked(principal, message.body, account=(platform, account))
        case _:
            return Asked(principal, message.body)


async def _parsed_for_an_answer(
    message: Msg, parse: Callable[[Msg], Awaitable[NatsMessage]]
) -> NatsMessage:
    """Drop what an answer must not repeat.

    A reply subject where nobody waits: whoever may ask could else make a router publish an
    answer where only routers may. A long correlation id: it becomes a header of the answer,
    and an answer over `max_payload` closes our connection for good.
    """
    parsed = await parse(message)
    if not parsed.reply_to.startswith(REPLIES):
        parsed.reply_to = ""
    if _CORRELATION.fullmatch(parsed.correlation_id) is None:
        parsed.correlation_id = ""
    return parsed
