"""C90: what one of our people writes in a person's chat is ours, and holds the agent back."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic_core import to_jsonable_python

from chatlane.domain.catalog import Account, Agent, Catalog
from chatlane.store.history.transcripts import TranscriptReads
from chatlane.turns.message_expiry import MessageExpiry
from chatlane_schemas.inbound import InboundEvent, Kind
from tests.integration.decisions.test_receipts import answered, receipt
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
OWNER = "900"
CUSTOMER: Fields = {"chat": "42", "user": "42"}


def staffed(
    pause: timedelta = timedelta(0), agent: Agent | None = None, **fields: object
) -> Catalog:
    """Return a catalog whose accounts are also used by one of our people."""
    declared = catalog(agents=[agent] if agent else [])
    platforms = {
        name: replace(platform, accounts={"bot": _staffed(platform.accounts["bot"], pause, fields)})
        for name, platform in declared.platforms.items()
    }
    return replace(declared, platforms=platforms)


def _staffed(account: Account, pause: timedelta, fields: dict[str, object]) -> Account:
    return replace(account, staff_ids=frozenset({OWNER}), staff_pause=pause, **fields)  # type: ignore[arg-type]


def by_owner(mid: str, text: str = "I take over", *, flagged: bool = False) -> InboundEvent:
    said = event(chat="42", user="901" if flagged else OWNER, mid=mid, text=text)
    if not flagged or said.sender is None:
        return said
    return said.model_copy(update={"sender": said.sender.model_copy(update={"is_staff": True})})


@pytest.mark.parametrize("own_ids", [frozenset(), frozenset({OWNER})], ids=["", "own id"])
@pytest.mark.parametrize("flagged", [False, True], ids=["declared", "flagged"])
async def test_c90_our_people_are_recorded_as_ours_and_start_nothing(
    kernel_with: KernelWith,
    own_ids: frozenset[str],
    flagged: bool,  # noqa: FBT001
) -> None:
    kernel = await kernel_with(staffed(own_ids=own_ids))
    asked = await kernel.say(event(**CUSTOMER, mid="1", text="hello"), at("09:00"))
    await kernel.run_turn(asked.session, "my answer")
    told = await kernel.say(by_owner("3", flagged=flagged), at("09:01"))
    assert told.session == asked.session
    assert await kernel.transcript(asked.session) == [
        (1, "user", "hello"),
        (2, "assistant", "my answer"),
        (3, "assistant", "I take over"),
    ]
    assert await kernel.live_turn(asked.session) is None
    assert await kernel.value("SELECT author FROM messages WHERE seq = 3") in {OWNER, "901"}


async def test_c90_our_people_may_write_first(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed())
    told = await kernel.say(by_owner("1"), at("09:00"))
    asked = await kernel.say(event(**CUSTOMER, mid="2", text="oh, hello"), at("09:01"))
    assert asked.session == told.session
    assert await kernel.value("SELECT owner FROM sessions") is not None
    claimed = await kernel.claim_live(asked.session)
    assert [message.text for message in claimed.messages] == ["oh, hello"]


async def test_c90_a_copy_of_our_answer_is_told_apart_by_its_receipt(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(staffed(timedelta(minutes=10)))
    sent = await answered(kernel)
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:01"))
    copied = await kernel.say(by_owner("2", "my answer"), at("09:01"))
    assert copied.session_id is None
    assert await kernel.value("SELECT staff_until FROM sessions") is None
    typed = await kernel.say(by_owner("3", "my answer"), at("09:02"))
    assert typed.session_id is not None


@pytest.mark.parametrize("first", ["staff", "customer"])
async def test_c90_the_agent_waits_while_our_people_write(
    kernel_with: KernelWith, first: str
) -> None:
    kernel = await kernel_with(staffed(timedelta(minutes=10)))
    opening = await kernel.say(event(**CUSTOMER, mid="1", text="hello"), at("09:00"))
    await kernel.run_turn(opening.session, "my answer")
    said = {
        "staff": by_owner("3"),
        "customer": event(**CUSTOMER, mid="4", text="who are you?"),
    }
    order = [first, *(said.keys() - {first})]
    for minute, who in enumerate(order, 1):
        await kernel.say(said[who], at(f"09:0{minute}"))
    notices = len(await kernel.published("TURNS"))
    assert notices == (1 if first == "staff" else 2)
    if first == "staff":
        waits = await kernel.value(
            "SELECT due_at - created_at > interval '8 minutes' FROM turns WHERE state = 'ready'"
        )
        assert waits is True


async def test_c90_the_agent_answers_at_once_after_the_pause(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed(timedelta(minutes=10)))
    await kernel.say(by_owner("1"), at("09:00"))
    await kernel.say(event(**CUSTOMER, mid="2", text="hello?"), at("09:10:01"))
    assert len(await kernel.published("TURNS")) == 1


async def test_c90_a_stream_agent_is_told_until_when_our_people_write(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(staffed(timedelta(minutes=10), Agent("main", delivery="stream")))
    await kernel.say(event(**CUSTOMER, mid="1", text="hello"), at("09:00"))
    await kernel.say(by_owner("2"), at("09:01"))
    await kernel.say(event(**CUSTOMER, mid="3", text="and?"), at("09:02"))
    await kernel.say(event(**CUSTOMER, mid="4", text="later"), at("09:11:01"))
    routed = await kernel.published("ROUTED")
    assert [message.get("text") for message in routed] == ["hello", "and?", "later"]
    until = [message.get("staff_until") for message in routed]
    assert until == [None, to_jsonable_python(at("09:11")), None]


@pytest.mark.parametrize(
    "said",
    [
        {"chat": OWNER, "user": OWNER},
        {"chat": "-100", "user": OWNER, "kind_of_chat": "group"},
        {"chat": "42", "user": "42"},
    ],
    ids=["their own chat", "group", "customer"],
)
async def test_c90_elsewhere_our_people_are_people(kernel_with: KernelWith, said: Fields) -> None:
    kernel = await kernel_with(staffed())
    asked = await kernel.say(event(**said, mid="1", text="hello"), at("09:00"))
    assert await kernel.live_turn(asked.session) is not None


async def test_c90_an_edit_by_our_people_changes_their_row(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed())
    told = await kernel.say(by_owner("1", "helo"), at("09:00"))
    edit = by_owner("1", "hello").model_copy(update={"id": "edit-1", "kind": Kind.EDIT})
    await kernel.say(edit, at("09:01"))
    assert await kernel.said(told.session) == ["hello"]
    assert await kernel.live_turn(told.session) is None


async def test_c90_commands_of_our_people_are_words(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed())
    told = await kernel.say(by_owner("1", "/new"), at("09:00"))
    assert await kernel.said(told.session) == ["/new"]
    assert await kernel.told() == []


@pytest.mark.parametrize("reaction_turns", [False, True])
@pytest.mark.parametrize(
    ("act", "row"),
    [
        pytest.param({"kind": "reaction", "mid": "1", "text": "\U0001f44d"}, None, id="reaction"),
        pytest.param({"kind": "reaction", "mid": "1", "removed": True}, None, id="took back"),
        pytest.param({"kind": "service", "mid": "5", "service": "typing"}, "user", id="service"),
        pytest.param({"mid": "5", "text": "see above", "reply_to": "1"}, "assistant", id="reply"),
        pytest.param({"mid": "5", "text": "psst", "observed": True}, "assistant", id="overheard"),
        pytest.param({"mid": "5", "text": "/stop"}, "assistant", id="stop"),
        pytest.param(
            {"mid": "5", "text": None, "sticker": {"emoji": "!"}}, "assistant", id="sticker"
        ),
        pytest.param({"mid": "5", "text": "\u200b"}, None, id="blank"),
        pytest.param(
            {"kind": "action", "event_id": "q1", "mid": "2", "press": {"label": "Yes"}},
            "assistant",
            id="press",
        ),
        pytest.param(
            {"kind": "edit", "mid": "5", "text": "new", "counts_as_new": True},
            "assistant",
            id="edit of an unknown message",
        ),
        pytest.param({"kind": "delete", "mid": "5"}, None, id="delete of an unknown message"),
    ],
)
async def test_c90_nothing_that_our_people_do_is_of_the_person(
    kernel_with: KernelWith,
    act: Fields,
    row: str | None,
    reaction_turns: bool,  # noqa: FBT001
) -> None:
    declared = staffed(timedelta(minutes=10))
    agents = {
        name: replace(agent, reaction_turns=reaction_turns)
        for name, agent in declared.agents.items()
    }
    kernel = await kernel_with(replace(declared, agents=agents))
    asked = await kernel.say(event(**CUSTOMER, mid="1", text="hello"), at("09:00"))
    await kernel.run_turn(asked.session, "my answer")
    await kernel.say(event(chat="42", user=OWNER, **act), at("09:01"))
    roles = [role for _, role, _ in await kernel.transcript(asked.session)]
    assert roles == ["user", "assistant", *filter(None, [row])]
    assert await kernel.live_turn(asked.session) is None
    assert await kernel.told() == []
    assert await kernel.dead() == []
    pauses = await kernel.value("SELECT staff_until IS NOT NULL FROM sessions")
    assert pauses is (row == "assistant")


async def test_c90_replies_to_and_by_our_people_find_their_rows(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed())
    asked = await kernel.say(event(**CUSTOMER, mid="1", text="how much?"), at("09:00"))
    await kernel.run_turn(asked.session, "my answer")
    reply = event(**CUSTOMER, mid="4", text="too much", reply_to="3")
    ours = event(chat="42", user=OWNER, mid="3", text="ten", reply_to="1")
    await kernel.say_together([ours, reply], at("09:01"))
    (told,) = (await kernel.run_turn(asked.session)).messages
    assert told.replied is not None
    assert (told.replied.seq, told.replied.role, told.replied.text) == (3, "assistant", "ten")
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(asked.session, below_seq=4, limit=1, max_bytes=1000)
    assert found.rows[0].replied is not None
    assert found.rows[0].replied.text == "how much?"


@pytest.mark.parametrize("by_staff", [True, False])
async def test_c90_a_message_that_disappears_does_so_for_both_sides(
    kernel_with: KernelWith,
    by_staff: bool,  # noqa: FBT001
) -> None:
    kernel = await kernel_with(staffed())
    said = event(
        chat="42",
        user=OWNER if by_staff else "42",
        mid="1",
        text="sesame",
        expires_at="2026-05-11T10:00:00Z",
    )
    await kernel.say(said, at("09:00"))
    assert await MessageExpiry(kernel.store, kernel.writer).sweep() == 1
    assert await kernel.value("SELECT count(*) FROM messages WHERE content = 'sesame'") == 0


async def test_c90_our_people_delete_what_they_wrote(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(staffed())
    told = await kernel.say(by_owner("1", "wrong chat"), at("09:00"))
    delete = event(chat="42", user=OWNER, mid="1", kind="delete")
    await kernel.say(delete, at("09:01"))
    assert await kernel.value("SELECT state FROM messages") == "deleted"
    assert await kernel.live_turn(told.session) is None
