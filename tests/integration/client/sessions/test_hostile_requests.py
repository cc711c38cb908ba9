"""Hostile bodies and headers on the wire, on every subject on which a router answers."""

import asyncio
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from chatlane_client import SessionApi, open_connection
from chatlane_schemas import ApiErrorCode, decode
from chatlane_schemas.session_api.sessions import ApiReply
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import CHANNELS, Channel
from tests.integration.api.test_hostile_requests import BODIES, CANARY
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, MAIN, PLATFORM, PRINCIPAL

pytestmark = pytest.mark.integration

ANSWERED: Final = [channel for channel in CHANNELS if channel.replies]
HEADERS: Final = (
    None,
    {"content-type": "application/json", "correlation_id": CANARY + "x" * 5_000},
    {
        "content-type": "text/plain",
        "reply_to": "INBOUND",
        "Nats-Msg-Id": CANARY,
        "traceparent": "x",
    },
)
PAIRS: Final = list(product(BODIES.values(), HEADERS))
# Each body and each set of headers; a body of 1 MB on hundreds of subjects takes seconds.
EACH: Final = [
    *((body, None) for body in BODIES.values()),
    *((b"[]", headers) for headers in HEADERS if headers is not None),
]


def subjects_of(channel: Channel) -> list[str]:
    """Return the subjects on which a request may be asked: as it is, and as narrowed by who asks."""
    asked = subjects.filled(channel.address, principal=PRINCIPAL, agent=MAIN.name)
    if channel.address.endswith("{agent}"):
        return [asked]
    return [asked, f"{asked}.{MAIN.name}", f"{asked}.{PLATFORM}.{ACCOUNT}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(EACH, id="each"),
        pytest.param(PAIRS, id="pairs", marks=pytest.mark.slow),
    ],
)
async def test_hostile_bodies_on_the_wire_get_typed_answers_and_the_router_goes_on(
    tmp_path: Path,
    nats_url: str,
    database_url: str,
    requests: list[tuple[bytes, dict[str, str] | None]],
) -> None:
    assert len(ANSWERED) > 30
    async with (
        real_router(tmp_path, nats_url, database_url),
        open_connection(nats_url, name="test") as client,
    ):
        with capture_logs() as logs:
            for channel in ANSWERED:
                for subject in subjects_of(channel):
                    answers = await asyncio.gather(
                        *(
                            client.request(subject, body, timeout=30, headers=headers)
                            for body, headers in requests
                        )
                    )
                    for answer in answers:
                        error = decode(ApiReply, answer.data).error
                        assert error is not None, subject
                        assert error.code is ApiErrorCode.INVALID
                        assert CANARY.encode() not in answer.data
        assert (await SessionApi(client, principal=PRINCIPAL).count()).total == 0
    assert CANARY not in str(logs)
    assert not [line for line in logs if line["log_level"] in {"error", "critical"}]
