"""What is no message: kept as seen, counted, and starts nothing; and who may not speak.

What edits and deletes do to messages that are there is told in `test_edits`.
"""

from collections.abc import Awaitable, Callable

import pytest

from chatlane.domain.catalog import Catalog
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
ECHO: Fields = {"chat": "701", "user": "UBOT", "text": "my own answer"}
QUIET = ("edit", "delete", "reaction", "receipt", "service", "migration")


@pytest.mark.parametrize("kind", [kind for kind in QUIET if kind != "reaction"])
async def test_other_kinds_start_nothing(kernel: Kernel, kind: str) -> None:
    """C37: neither in a session that is there nor where there is none."""
    first = await kernel.say(event(**ANN, mid="1", text="@bot sumarise"), at("09:00"))
    await kernel.run_all()
    before = await kernel.fetch("SELECT * FROM sessions")
    known = await kernel.say(event(**ANN, mid="9", kind=kind, text="@bot summarise"), at("09:01"))
    unknown = await kernel.say(event(chat="702", user="702", kind=kind, text="x"), at("09:02"))
    assert (known.session_id, unknown.session_id) == (None, None)
    assert await kernel.fetch("SELECT * FROM sessions") == before
    assert await kernel.said(first.session) == ["@bot sumarise", "ok"]
    assert await kernel.turns_of(first.session) == 1
    assert kernel.metrics.counts["kept", kind] == 2
    assert await kernel.dead() == []


@pytest.mark.parametrize("kind", [*QUIET, "system"])
async def test_other_kinds_are_told_apart_by_their_event(kernel: Kernel, kind: str) -> None:
    """One event twice is a repeat; two edits of one message are two."""
    about: Fields = {**ANN, "mid": "1", "kind": kind, "text": "x"}
    for event_id in ("e1", "e1", "e2", "e1"):
        await kernel.say(event(**about, event_id=event_id), at("09:01"))
    for version in ("v1", "v2", "v1"):
        await kernel.say(event(**about, version=version), at("09:02"))
    assert kernel.metrics.counts["duplicates", "inbound"] == 3
    # An edit and a delete leave a mark of the message that has not come, too.
    marks = 5 if kind in {"edit", "delete"} else 4
    assert await kernel.value("SELECT count(*) FROM seen") == marks


async def test_an_edit_is_no_repeat_of_its_message_nor_the_message_of_its_edit(
    kernel: Kernel,
) -> None:
    await kernel.say(event(**ANN, mid="1", kind="edit", text="b", event_id="e"), at("09:00"))
    placed = await kernel.say(event(**ANN, mid="1", text="a"), at("09:01"))
    assert texts(await kernel.run_turn(placed.session)) == ["b"]


async def test_a_timer_runs_in_the_session_and_is_told_as_such(kernel: Kernel) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text="hi"), at("09:00"))
    await kernel.say(event(**ANN, kind="system", text="tick"), at("09:01"))
    claimed = await kernel.run_turn(placed.session)
    assert [(one.kind, one.text) for one in claimed.messages] == [
        ("message", "hi"),
        ("system", "tick"),
    ]
    assert await kernel.value("SELECT user_messages FROM sessions") == 1


async def test_what_a_message_carries_reaches_the_worker(kernel: Kernel) -> None:
    files = [{"url": "https://example.org/a.png", "media_type": "image/png", "size_bytes": 3}]
    one = event(
        **ANN, mid="1", text=None, attachments=files, reply_to="0", sent_at="2026-05-11T08:59:58Z"
    )
    placed = await kernel.say(one, at("09:00"))
    (message,) = (await kernel.claim_live(placed.session)).messages
    assert (message.text, message.sent_at) == (None, at("08:59:58"))
    assert [file.url for file in message.attachments] == ["https://example.org/a.png"]
    assert message.source.sender is not None
    assert message.source.sender.id == "701"


@pytest.mark.parametrize("bots_allowed", [True, False])
async def test_our_own_words_never_run(kernel_with: KernelWith, *, bots_allowed: bool) -> None:
    """C38: in whatever field our id comes, marked as a bot or not."""
    own_ids = frozenset({"UBOT", "15550009@s.whatsapp.net"})
    kernel = await kernel_with(catalog(own_ids=own_ids, bots_allowed=bots_allowed))
    echoes = [
        event("slack", **ECHO, is_bot=True),
        event("slack", **ECHO),
        event("slack", chat="D5", user="U9", alt_user="UBOT", text="x"),
        event("slack", chat="C5", user="UBOT", sender_chat="C5", is_bot=True, text="x"),
        event("whatsapp", chat="1@s.whatsapp.net", user="15550009@s.whatsapp.net", text="x"),
        event("whatsapp", chat="1@s.whatsapp.net", user="15550009:3@s.whatsapp.net", text="x"),
        event("whatsapp", chat="1@s.whatsapp.net", user="+15550009", text="x"),
        event("whatsapp", chat="1@s.whatsapp.net", user="7@lid", aliases=["15550009"], text="x"),
    ]
    for number, echo in enumerate(echoes):
        placed = await kernel.say(echo, at(f"09:00:0{number}"))
        assert placed.session_id is None, echo
    assert await kernel.value("SELECT count(*) FROM sessions") == 0
    assert kernel.metrics.counts["kept", "bot"] == len(echoes)


async def test_other_bots_run_only_where_they_are_allowed(kernel_with: KernelWith) -> None:
    """C38."""
    other: Fields = {"chat": "111", "kind_of_chat": "group", "user": "OTHER", "is_bot": True}
    kernel = await kernel_with(catalog())
    assert (await kernel.say(event("discord", **other, text="a"))).session_id is None
    kernel = kernel.restarted(catalog(bots_allowed=True))
    assert (await kernel.say(event("discord", **other, text="b"))).session_id is not None


async def test_people_behind_a_bot_account_are_people(kernel: Kernel) -> None:
    """C08: anonymous admins and channels speak through an account of the platform."""
    anonymous: Fields = {"user": "1087968824", "is_bot": True, "sender_chat": "-50"}
    placed = await kernel.say(event(kind_of_chat="group", chat="-50", **anonymous, text="x"))
    assert placed.session_id is not None


@pytest.mark.parametrize("sender", [{"user": "UBOT", "is_bot": True}, {"user": "OTHER"}])
async def test_a_timer_runs_whoever_it_is_signed_by(
    kernel_with: KernelWith, sender: Fields
) -> None:
    """C24: what adapters and schedulers hand over is no chatter of bots."""
    kernel = await kernel_with(catalog(own_ids=frozenset({"UBOT"})))
    topic: Fields = {"kind_of_chat": "group", "chat": "-70", "thr": "10", "is_forum": True}
    ann = await kernel.say(event(**topic, user="7", mid="1", text="hi"), at("09:00"))
    tick = await kernel.say(event(**topic, **sender, kind="system", text="tick"), at("09:01"))
    assert tick.session == ann.session
