"""Bad input becomes a dead letter with its reason, soon, and holds nobody up."""

import json
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from chatlane_schemas.topology import subjects
from tests.acceptance.conftest import ReportLine
from tests.support.service.load_users import Person
from tests.support.service.processes import ACCOUNT, PLATFORM, STREAM_AGENT, TURN_AGENT
from tests.support.service.raw_publisher import publish_raw
from tests.support.service.scene import open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

WITHIN: Final = timedelta(seconds=1)
ANN: Final = Person("ann", TURN_AGENT)
BOB: Final = Person("bob", STREAM_AGENT)
KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Bad:
    """A body, and what it is set aside for; by default it goes where Ann's messages go."""

    body: bytes
    reason: str
    subject: str = subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(ANN.name))


def event(**fields: Any) -> bytes:  # noqa: ANN401 # whatever a stranger writes
    """Return Ann's event with other fields; None leaves one out."""
    its = ANN.event("never heard", uuid4().hex).model_dump(mode="json", exclude_none=True)
    return json.dumps({name: it for name, it in (its | fields).items() if it is not None}).encode()


NO_CHAT: Final = subjects.inbound(PLATFORM, ACCOUNT, subjects.NO_CHAT)
BAD: Final = {
    "no JSON": Bad(b"hello", "not_json"),
    "half of a JSON": Bad(event()[:-10], "not_json"),
    "no UTF-8": Bad(event().replace(b"never", b"\xff\xfe"), "not_json"),
    "a list": Bad(b"[]", "invalid"),
    "null": Bad(b"null", "invalid"),
    "text for a number": Bad(event(v="one"), "unknown_version"),
    "another version": Bad(event(v=2), "unknown_version"),
    "no version": Bad(event(v=None), "invalid"),
    "no platform": Bad(event(platform=None), "invalid"),
    "an unknown kind": Bad(event(kind="dance"), "invalid"),
    "a number for text": Bad(event(text=7), "invalid"),
    "a list for a chat": Bad(event(chat=[]), "invalid"),
    "a time without a zone": Bad(event(sent_at="2026-05-11T09:00:00"), "invalid"),
    "a float for an id": Bad(event(message_id=1.5), "bad_id"),
    "a boolean for an id": Bad(event(message_id=True), "bad_id"),
    "a list for an id": Bad(event(message_id=["1"]), "bad_id"),
    "NUL in an id": Bad(event(message_id="a\0b"), "bad_id"),
    "a lone surrogate in an id": Bad(event(message_id="a\ud800b"), "bad_id"),
    "an id of 257 bytes": Bad(event(message_id="x" * 257), "bad_id"),
    "more than 256 kB": Bad(event(text="x" * 256 * KIB), "oversized"),
    "nesting": Bad(event(extra="@").replace(b'"@"', b"[" * 40 + b"]" * 40), "too_deep"),
    "a great deal of nesting": Bad(b"[" * 200 * KIB, "too_deep"),
    "no conversation": Bad(event(chat={"kind": "dm"}, sender=None), "no_conversation", NO_CHAT),
    "another chat than the subject says": Bad(event(chat={"id": "eve"}), "subject_mismatch"),
    "another account than the subject says": Bad(event(account="other"), "subject_mismatch"),
    "another platform than the subject says": Bad(event(platform="other"), "subject_mismatch"),
    "an account that is not declared": Bad(
        event(account="other"),
        "unknown_account",
        subjects.inbound(PLATFORM, "other", subjects.chat_token(ANN.name)),
    ),
    "a profile that is not declared": Bad(event(profile="nobody"), "unknown_profile"),
    "a result that is no JSON": Bad(b"hello", "not_json", subjects.result(TURN_AGENT, uuid4())),
    "a result of nothing": Bad(b"{}", "invalid", subjects.result(TURN_AGENT, uuid4())),
}

_DEAD: Final = """
SELECT encode(digest, 'hex'), reason, body, extract(epoch FROM at - stored_at)::float8
FROM dead_letters
"""


async def test_bad_input_is_set_aside_within_a_second_and_holds_nobody_up(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN, BOB]) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        async with scene.users.talking(40):
            await scene.until_answers_flow(5)
            for bad in BAD.values():
                verdict = await publish_raw(nats_url, bad.subject.encode(), bad.body)
                assert verdict.sequence is not None, verdict
            await scene.until_answers_flow(5)
        await scene.verify(dead=[bad.reason for bad in BAD.values()])
        found = {row[0]: tuple(row)[1:] for row in await scene.recorder.fetch(_DEAD)}
        for name, bad in BAD.items():
            reason, body, seconds = found[sha256(bad.body).hexdigest()]
            assert (reason, body) == (bad.reason, bad.body), name
            assert seconds < WITHIN.total_seconds(), name
        told = [json.loads(raw.data) for raw in await scene.recorder.stream("DEAD")]
        assert {(its["digest"], its["reason"]) for its in told} == {
            (digest, row[0]) for digest, row in found.items()
        }
        report_line(f"slowest dead letter after {max(row[2] for row in found.values()):.2f} s")


async def test_what_postgres_cannot_store_is_replaced_and_the_message_runs(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN]) as scene:
        await scene.start(routers=1, workers=1, subscribers=0)
        shown = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{GRINNING FACE}"
        scene.users.unheard[shown] = 0
        body = event(text="a\0b\ud800c\N{GRINNING FACE}")
        subject = subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(ANN.name))
        await publish_raw(nats_url, subject.encode(), body)
        await scene.until_all_is_heard()
        assert await scene.recorder.value("SELECT content FROM messages WHERE seq = 1") == shown
        assert await scene.recorder.dead() == {}
