"""C90: what one of our people writes in a person's chat is ours, and holds the agent back."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from chatlane.domain.catalog import Account, Catalog
from chatlane_schemas.inbound import InboundEvent, Kind
from tests.integration.decisions.test_receipts import answered, receipt
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
OWNER = "900"
CUSTOMER: Fields = {"chat": "42", "user": "42"}


def staffed(pause: timedelta = timedelta(0), **fields: object) -> Catalog:
    """Return a catalog whose accounts are also used by one of our people."""
    declared = catalog()
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
