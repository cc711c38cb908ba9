"""Every request of the contract with hostile JSON: a clear error, no body in a log, nothing stuck.

The bodies are written by hand, so that they hold what no JSON library would write.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.envelope import MAX_BODY_BYTES, new_envelope_id
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply
from chatlane_schemas.topology.channels import Channel
from tests.integration.api.test_every_request import CHANNELS, Api, message_of
from tests.support.worlds.kernel import Kernel

pytestmark = pytest.mark.integration

CANARY: Final = "canary-7d1f"
MAX_ERROR_CHARACTERS: Final = 400
# JSON text that takes the place of a value.
VALUES: Final = {
    "nested too deeply": "[" * 40 + "]" * 40,
    "nested very deeply": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "brackets that never close": "[" * 50_000,
    "a number of many digits": "9" * 5_000,
    "a number beyond 64 bits": str(2**64),
    "a negative number": str(-(2**63) - 1),
    "a number beyond floats": "1e400",
    "a tiny number": "1e-400",
    "a fraction": "1.5",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "NaN within": '{"a": [NaN]}',
    "a lone surrogate": r'"\ud800"',
    "a lone surrogate in a key": r'{"\udfff": 1}',
    "a NUL": r'"\u0000"',
    "bidi and line separators": r'"\u202e\u2028\u2066"',
    "keys that say the same": '{"a": 1, "a": 2, "a": {"a": 3}}',
    "many keys": "{" + ",".join(f'"{number}":1' for number in range(10_000)) + "}",
    "many items": "[" + "0," * 20_000 + "0]",
    "many objects": "[" + '{"role":"user"},' * 5_000 + '{"role":"user"}]',
    "a long text": f'"{CANARY}{"x" * 200_000}"',
    "a text of many bytes": '"' + "\N{GRINNING FACE}" * 40_000 + '"',
    "no member of a set": f'"{CANARY}"',
    "a path": f'"../../{CANARY}"',
    "SQL": f'"{CANARY}\'; DROP TABLE sessions; --"',
    "a format": f'"%s %n {{0.__class__}} ${{{CANARY}}}"',
    "a time that is none": '"2026-02-30T25:61:00Z"',
    "a time beyond the calendar": '"9999-12-31T23:59:59-23:59"',
    "a time of long ago": '"0001-01-01T00:00:00+23:59"',
    "a date": '"2026-03-01"',
    "an id of nothing": '"00000000-0000-0000-0000-000000000000"',
    "an id of an alphabet": '"urn:uuid:{0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01}"',
    "an empty text": '""',
    "an empty object": "{}",
    "an empty list": "[]",
    "nothing": "null",
    "a flag": "true",
}
BODIES: Final = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a flag": b"true",
    "a number": b"7",
    "no UTF-8": b'{"v": 1, "id": "\xff\xfe"}',
    "UTF-16": '{"v": 1}'.encode("utf-16"),
    "a mark of byte order": b"\xef\xbb\xbf{}",
    "comments": b'{"v": 1 /* one */}',
    "a comma too many": b'{"v": 1,}',
    "no end": b'{"v": 1, "id": "' + CANARY.encode(),
    "text that never ends": b'{"v": 1, "id": "' + b"x" * 200_000,
    "escapes that never end": b'{"v": 1, "id": "' + rb"\ud800" * 40_000,
    "two bodies": b'{"v": 1}{"v": 1}',
    "only brackets": b"[" * MAX_BODY_BYTES,
    "too many bytes": b'{"v": 1, "id": "' + CANARY.encode() + b"x" * 1_000_000 + b'"}',
    "another version": b'{"v": 2}',
    "a version as text": b'{"v": "1"}',
    "zeros": bytes(1_000),
}


def places(message: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield where a value is, of a message and of the objects in it."""
    for name, value in message.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in places(value))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from ((name, "0", *inner) for inner in places(value[0]))


def spoiled(message: dict[str, Any], place: tuple[str, ...], value: str) -> bytes:
    """Return the body of a message with JSON text in the place of a value."""
    mark = "the place of the hostile value"
    copied = json.loads(json.dumps(message))
    inner = copied
    for step in place[:-1]:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    inner[place[-1]] = mark
    return json.dumps(copied).replace(json.dumps(mark), value).encode()


class Attacker:
    """Sends bodies, and looks at what every answer must be."""

    def __init__(self, api: Api, channel: Channel) -> None:
        self._api = api
        self._channel = channel
        self.refused = 0

    async def send(self, body: bytes, **subject: Any) -> None:  # noqa: ANN401 - what a subject says
        reply = await self._api.ask(self._channel, body, **subject)
        error = decode(ApiReply, reply).error
        if error is None:
            # What was in its place was allowed there.
            decode(self._channel.message, body)
            decode(self._channel.replies[0], reply)
            return
        self.refused += 1
        assert error.code is not ApiErrorCode.UNAVAILABLE, body[:200]
        assert 0 < len(error.message) <= MAX_ERROR_CHARACTERS
        assert "is not valid" not in error.message, "a kind of error without words"
        for told in ("Traceback", "File ", "pydantic", "asyncpg", CANARY, "xxxx", "0000-0000"):
            assert told not in error.message
        try:
            decode(self._channel.message, body)
        except DecodeError:
            assert error.code is ApiErrorCode.INVALID


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that is sent gets into a log, nor a failure: neither ours nor of a library."""
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        yield
    said = f"{logs} {[vars(record) for record in caplog.records]}"
    assert CANARY not in said
    assert "request_crashed" not in said


@pytest.fixture
async def api(kernel: Kernel) -> Api:
    return Api(kernel)


async def alive(api: Api) -> None:
    """Assert that an ordinary request is answered."""
    session = await api.opened()
    channel = CHANNELS["sessionGet"]
    body = message_of(channel, "minimal") | {"session_id": str(session)}
    reply = json.loads(await api.ask(channel, json.dumps(body).encode()))
    assert reply["session"]["id"] == str(session)


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", sorted(CHANNELS))
async def test_hostile_values_get_a_clear_error_in_any_place(api: Api, name: str) -> None:
    channel = CHANNELS[name]
    attacker = Attacker(api, channel)
    session = str(await api.opened())
    full = message_of(channel, "full")
    full |= {"session_id": session} if "session_id" in full else {}
    for place in places(full):
        for value in VALUES.values():
            identity = {} if place == ("id",) else {"id": new_envelope_id()}
            await attacker.send(spoiled(full | identity, place, value))
    assert attacker.refused > len(VALUES)
    await alive(api)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", sorted(CHANNELS))
async def test_hostile_bodies_are_refused_and_change_nothing(api: Api, name: str) -> None:
    attacker = Attacker(api, CHANNELS[name])
    before = await api.everything()
    for body in BODIES.values():
        for subject in ({}, {"agent": "main"}, {"account": ("telegram", "bot")}):
            await attacker.send(body, **subject)
    assert attacker.refused == 3 * len(BODIES)
    assert await api.everything() == before


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", sorted(CHANNELS))
async def test_what_is_said_twice_counts_as_it_is_checked(api: Api, name: str) -> None:
    """No key that is repeated passes a check with one value and acts with another."""
    channel = CHANNELS[name]
    session = str(await api.opened())
    foreign = {"platform": "telegram", "account": "two", "id": "stranger"}
    own = {"platform": "telegram", "account": "bot", "id": "stranger"}
    message = message_of(channel, "minimal")
    message.pop("acting_for", None)
    message |= {"session_id": session} if "session_id" in message else {}
    text = json.dumps(message)[:-1]
    attacker = Attacker(api, channel)
    before = await api.everything()
    for first, last in ((own, foreign), (foreign, own)):
        repeated = f'"acting_for": {json.dumps(first)}, "acting_for": {json.dumps(last)}'
        body = f"{text}, {repeated}}}".replace(message["id"], new_envelope_id()).encode()
        reply = await api.ask(channel, body, account=("telegram", "bot"))
        assert session.encode() not in reply
        await attacker.send(body, account=("telegram", "bot"))
    made = {"session.create", "session.import", "session.cleanup", "project.create", "person.erase"}
    if ".".join(channel.address.split(".")[4:]) not in made:
        assert await api.everything() == before
