"""Dead letters over the API: operators find them, see them, retry and drop them."""

import json
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from chatlane.store import letter_lists
from chatlane_schemas.topology import subjects
from tests.integration.api.test_every_request import CHANNELS, Api
from tests.support.worlds.kernel import DAY, Kernel, event

pytestmark = pytest.mark.integration

SECOND: Final = timedelta(seconds=1)


@pytest.fixture
async def api(kernel: Kernel) -> Api:
    return Api(kernel)


async def ask(api: Api, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of requests
    """Make a request as an operator and return the reply."""
    envelope = {"v": 1, "id": uuid4().hex, "at": "2026-03-01T12:00:00Z"}
    reply = await api.ask(CHANNELS[name], json.dumps(envelope | fields, default=str).encode())
    decoded: dict[str, Any] = json.loads(reply)
    return decoded


async def refuse(kernel: Kernel, chat: str, body: bytes, account: str = "bot") -> UUID:
    """Let a body arrive that no router can read; return its dead letter."""
    subject = f"chat.v1.log.3.telegram.{account}.{subjects.chat_token(chat)}"
    known = await kernel.value("SELECT count(*) FROM dead_letters")
    message = kernel.raw("inbound", 3, subject, body, DAY + known * SECOND)
    await kernel.decide([message])
    letter: UUID = await kernel.value("SELECT id FROM dead_letters ORDER BY at DESC LIMIT 1")
    return letter


async def failed_turn(kernel: Kernel, chat: str = "42") -> tuple[UUID, UUID]:
    """Let a worker give up a turn; return its session and its dead letter."""
    session = (await kernel.say(event(chat=chat, user=chat, mid="1", text="hello"))).session
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, parts=[], outcome="failed", retry=False, error="broken")
    letter: UUID = await kernel.value("SELECT id FROM dead_letters ORDER BY at DESC LIMIT 1")
    return session, letter


async def listed(api: Api, **fields: Any) -> list[UUID]:  # noqa: ANN401 - fields of the request
    reply = await ask(api, "letterList", **fields)
    return [UUID(letter["id"]) for letter in reply.get("letters", ())]


async def test_dead_letters_are_found_by_cause_account_session_and_age(api: Api) -> None:
    kernel = api.kernel
    first = await refuse(kernel, "1", b"not json")
    other = await refuse(kernel, "2", b"not json either", "second")
    session, turn = await failed_turn(kernel)
    await kernel.fetch("UPDATE dead_letters SET at = at - interval '1 hour' WHERE id = $1", first)
    noon = await kernel.value("SELECT now() - interval '30 minutes'")
    for wanted, expected in (
        ({}, [turn, other, first]),
        ({"oldest_first": True}, [first, other, turn]),
        ({"reason": "not_json"}, [other, first]),
        ({"reason": "not_json", "cause": "agent"}, []),
        ({"cause": "agent"}, [turn]),
        ({"cause": "bug"}, []),
        ({"stage": "inbound"}, [other, first]),
        ({"platform": "telegram"}, [turn, other, first]),
        ({"account": "bot"}, [turn, first]),
        ({"account": "second"}, [other]),
        ({"session_id": session}, [turn]),
        ({"before": noon.isoformat().replace("+00:00", "Z")}, [first]),
        ({"letter_ids": [turn, first, uuid4()]}, [first, turn]),
    ):
        assert sorted(await listed(api, **wanted)) == sorted(expected), wanted
        if "letter_ids" not in wanted:
            assert await listed(api, **wanted) == expected, wanted

    counts = await ask(api, "letterCount")
    assert (counts["letters"], counts["conversations"]) == (3, 3)
    groups = {(it["reason"], it["account"]): it["letters"] for it in counts["groups"]}
    assert groups == {
        ("not_json", "bot"): 1,
        ("not_json", "second"): 1,
        ("turn_failed", "bot"): 1,
    }


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_pages_have_each_dead_letter_once(
    api: Api, monkeypatch: pytest.MonkeyPatch, *, oldest_first: bool
) -> None:
    letters = [await refuse(api.kernel, str(chat), b"%d" % chat) for chat in range(7)]
    letters = letters if oldest_first else letters[::-1]
    monkeypatch.setattr(letter_lists, "_LOOKED_AT", 2)
    found: list[UUID] = []
    cursor = None
    while True:
        place: dict[str, str] = {"cursor": cursor} if cursor else {}
        reply = await ask(api, "letterList", limit=5, oldest_first=oldest_first, **place)
        found += [UUID(it["id"]) for it in reply.get("letters", ())]
        if (cursor := reply.get("next_cursor")) is None:
            break
    assert found == letters
    assert (await ask(api, "letterList", cursor="x"))["error"]["code"] == "invalid"
    assert not (await ask(api, "letterCount"))["is_complete"]


async def test_what_a_dead_letter_holds_is_shown_under_audit(api: Api) -> None:
    kernel = api.kernel
    letter = await refuse(kernel, "1", b"what Ann wrote")
    session, turn = await failed_turn(kernel)
    await kernel.fetch("TRUNCATE audit")

    shown = await ask(api, "letterGet", letter_id=letter)
    assert shown["body_base64"] == "d2hhdCBBbm4gd3JvdGU="
    assert shown["publish_id"] == f"retry:{letter}"
    assert shown["publish_to"] == f"chat.v1.inbound.telegram.bot.{subjects.chat_token('1')}"
    of_turn = await ask(api, "letterGet", letter_id=turn)
    assert [it["text"] for it in of_turn["texts"]] == ["hello"]
    assert of_turn["letter"]["session_id"] == str(session)
    assert "publish_to" not in of_turn

    lines = await kernel.fetch("SELECT action, detail ->> 'letter', actor FROM audit ORDER BY id")
    assert [tuple(line) for line in lines] == [
        ("letter.get", str(letter), "nats:someone"),
        ("letter.get", str(turn), "nats:someone"),
    ]
    assert "Ann" not in str(await kernel.fetch("SELECT detail::text FROM audit"))


async def test_a_failed_turn_is_retried_once(api: Api) -> None:
    kernel = api.kernel
    session, letter = await failed_turn(kernel)
    await kernel.fetch("TRUNCATE audit")
    request = {"id": uuid4().hex, "letter_id": letter}

    first = await ask(api, "letterRetry", **request)
    again = await ask(api, "letterRetry", **request)
    pressed = await ask(api, "letterRetry", letter_id=letter)

    assert "error" not in first
    assert again == first
    assert pressed["error"]["code"] == "not_found"
    assert await kernel.dead() == []
    await kernel.answer(await kernel.claim_live(session), "now it works")
    assert await kernel.said(session) == ["hello", "now it works"]
    lines = await kernel.fetch(
        "SELECT action, outcome, detail ->> 'id', detail ->> 'letter', actor FROM audit ORDER BY id"
    )
    assert [tuple(line) for line in lines] == [
        ("dead_letter_retried", "done", str(letter), None, "nats:someone"),
        ("letter.retry", "done", None, str(letter), "nats:someone"),
        ("letter.retry", "not_found", None, str(letter), "nats:someone"),
    ]


async def test_what_cannot_be_retried_stays_and_says_why(api: Api) -> None:
    kernel = api.kernel
    logged = await refuse(kernel, "1", b"not json")
    younger = await refuse(kernel, "1", b"not json either")
    session, failed = await failed_turn(kernel)
    await kernel.say(event(chat="42", user="42", mid="2", text="hello?"), DAY + SECOND)
    before = await api.everything()
    for letter, why in ((logged, "publish its message"), (failed, "is in work")):
        error = (await ask(api, "letterRetry", letter_id=letter))["error"]
        assert error["code"] == "conflict"
        assert why in error["message"]
    assert f"{logged} is older" in (await ask(api, "letterGet", letter_id=younger))["obstacle"]
    assert await api.everything() == before

    assert "error" not in await ask(api, "letterRetry", letter_id=logged, is_published=True)
    assert await listed(api) == [failed, younger]
    assert await kernel.live_turn(session) is not None


async def test_a_dropped_dead_letter_leaves_its_digest(api: Api) -> None:
    letter = await refuse(api.kernel, "1", b"what Ann wrote")
    await api.kernel.fetch("TRUNCATE audit")

    assert "error" not in await ask(api, "letterDrop", letter_id=letter)
    assert (await ask(api, "letterDrop", letter_id=letter))["error"]["code"] == "not_found"

    assert await api.kernel.dead() == []
    actions = await api.kernel.fetch("SELECT action, outcome FROM audit ORDER BY id")
    assert [tuple(line) for line in actions] == [
        ("dead_letter_dropped", "done"),
        ("letter.drop", "done"),
        ("letter.drop", "not_found"),
    ]
    assert "Ann" not in str(await api.kernel.fetch("SELECT detail::text FROM audit"))


@pytest.mark.parametrize("subject", [{"agent": "main"}, {"account": ("telegram", "bot")}])
async def test_only_operators_reach_dead_letters(api: Api, subject: dict[str, Any]) -> None:
    session, letter = await failed_turn(api.kernel)
    for name in ("letterList", "letterCount", "letterGet", "letterRetry", "letterDrop"):
        body = {"v": 1, "id": uuid4().hex, "at": "2026-03-01T12:00:00Z"}
        body |= {"letter_id": str(letter), "session_id": str(session)}
        reply = json.loads(await api.ask(CHANNELS[name], json.dumps(body).encode(), **subject))
        assert reply["error"]["code"] == "forbidden"
        assert str(letter) not in json.dumps(reply)
    assert len(await api.kernel.dead()) == 1
