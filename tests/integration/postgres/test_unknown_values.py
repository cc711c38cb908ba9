"""F10: a stored value that this release does not know stops no chat and no request.

Such values come from a router of the next release, which has replaced the check of the column
before it writes them, or from somebody who changed a row by hand.
"""

import json
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from chatlane.postgres.stored_values import UNKNOWN_VALUES
from chatlane_schemas.turns import ClaimReply
from tests.integration.api.test_every_request import CHANNELS, Api, message_of
from tests.integration.requests.test_session_changes import Caller
from tests.support.worlds.kernel import Fields, Kernel, event

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
BEN: Fields = {"chat": "-700", "user": "702", "kind_of_chat": "group"}
UNKNOWN = "no such value"


class Column(NamedTuple):
    """A column that holds a value of a closed set, and how it gets another one."""

    name: str
    change: str
    checks: tuple[str, ...] = ()


def column(name: str, *, where: str = "true", checked: bool = True) -> Column:
    table, field = name.split(".")
    change = f"UPDATE {table} SET {field} = '{UNKNOWN}' WHERE {where}"  # noqa: S608 - names and values of this file
    return Column(name, change, (f"{table}_{field}_check",) if checked else ())


def inside(name: str, path: str) -> Column:
    table, field = name.split(".")
    change = (
        f"UPDATE {table} SET {field} = jsonb_set({field}, '{{{path}}}', '\"{UNKNOWN}\"')"  # noqa: S608 - names and values of this file
        f" WHERE {field} IS NOT NULL"
    )
    return Column(name, change)


COLUMNS = (
    column("sessions.end_reason", where="end_reason IS NOT NULL"),
    column("sessions.start_reason"),
    column("sessions.link_kind"),
    column("sessions.resume_reason", where="resume_marked_at IS NOT NULL", checked=False),
    Column("sessions.model_override", "UPDATE sessions SET model_override = '[1]'"),
    Column(
        "sessions.model_override",
        """UPDATE sessions SET model_override = '{"model": 7, "base_url": "x", "new": 1}'""",
    ),
    column("turns.cancel", where="state = 'claimed'"),
    column("turns.rest"),
    column("turns.outcome"),
    column("waiting.busy"),
    column("messages.state"),
    column("messages.unanswered"),
    column("messages.role", where="role = 'assistant'"),
    column("message_revisions.reason"),
    inside("turns.source", "chat,kind"),
    inside("waiting.source", "chat,kind"),
    inside("messages.source", "chat,kind"),
    inside("waiting.details", "kind"),
    inside("messages.details", "kind"),
)
# What no reader goes by: there is nothing to report.
UNREAD = {"turns.rest", "turns.outcome", "waiting.busy", "waiting.details"}
each_column = pytest.mark.parametrize("changed", COLUMNS, ids=lambda one: one.name)


class Scene(NamedTuple):
    """Two chats: the session of one has ended, and in that of the other a turn runs."""

    ended: UUID
    live: UUID
    claimed: ClaimReply


async def scene(kernel: Kernel) -> Scene:
    caller = Caller(kernel)
    ended = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(ended)
    await kernel.say(event(**ANN, mid="1", kind="edit", text="an"))
    await caller.changed("end", ended)
    live = (await kernel.say(event(**BEN, mid="1", text="b"))).session
    await kernel.run_turn(live)
    await caller.changed("mark", live)
    await caller.changed("override", live, override={"model": "small-1"})
    await kernel.say(event(**BEN, mid="2", text="c"))
    claimed = await kernel.claim_live(live)
    await kernel.say(event(**BEN, mid="3", text="d"))
    return Scene(ended, live, claimed)


async def change(kernel: Kernel, changed: Column) -> None:
    table = changed.name.partition(".")[0]
    for check in changed.checks:
        await kernel.fetch(f"ALTER TABLE {table} DROP CONSTRAINT {check}")
    await kernel.fetch(changed.change)
    # Otherwise nothing is tried.
    assert await kernel.value(f"SELECT count(*) FROM {table}") > 0  # noqa: S608 - names and values of this file


@each_column
async def test_f10_a_chat_goes_on_whatever_is_stored(own_kernel: Kernel, changed: Column) -> None:
    kernel = own_kernel
    there = await scene(kernel)
    await change(kernel, changed)

    new = await kernel.say(event(**ANN, mid="2", text="e"))
    await kernel.say(event(**BEN, mid="4", text="f"))
    await kernel.answer(there.claimed)
    seen = await kernel.run_all()
    for mid, text in (("5", "/stop"), ("6", "/retry"), ("7", "g")):
        await kernel.say(event(**BEN, mid=mid, text=text))
    await kernel.say(event(**ANN, mid="3", text="/resume 1"))
    await kernel.say(event(**ANN, mid="4", text="h"))
    seen += await kernel.run_all()

    assert await kernel.dead() == []
    assert new.session != there.ended
    answered = [message.text for claimed in seen for message in claimed.messages]
    assert {"d", "e", "f", "g", "h"} <= set(answered)


@each_column
async def test_f10_every_request_is_answered_whatever_is_stored(
    own_kernel: Kernel, changed: Column
) -> None:
    kernel = own_kernel
    there = await scene(kernel)
    await change(kernel, changed)
    api = Api(kernel)

    async def ask(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of a request
        body = message_of(CHANNELS[name], "minimal") | fields
        reply: dict[str, Any] = json.loads(await api.ask(CHANNELS[name], json.dumps(body).encode()))
        assert "error" not in reply, reply["error"]
        return reply

    listed = await ask("sessionList")
    assert {view["id"] for view in listed["sessions"]} == {str(there.live), str(there.ended)}
    for session in (there.ended, there.live):
        about = {"session_id": str(session)}
        assert (await ask("sessionGet", **about))["session"]["id"] == str(session)
        assert (await ask("sessionUpdate", **about, model="large-1"))["session"]["model"]
        rows = (await ask("transcriptLoad", **about, as_stored=True))["rows"]
        assert [row["content"] for row in rows if row["role"] == "user"]
        await ask("transcriptSearch", **about, query="an")
        await ask("sessionFork", **about)
        await ask("sessionReopen", **about)
    shown = await ask("transcriptRevisions", session_id=str(there.ended), seq=1)
    assert [one["content"] for one in shown["revisions"]] == ["a"]
    await ask("sessionOverride", session_id=str(there.live), override={"model": "large-1"})
    await ask("sessionStop", session_id=str(there.live))
    await ask("sessionReset", session_id=str(there.ended))


@pytest.mark.parametrize(
    "changed", [one for one in COLUMNS if one.name not in UNREAD], ids=lambda one: one.name
)
async def test_f10_a_value_that_was_not_known_is_reported_without_itself(
    own_kernel: Kernel,
    changed: Column,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = await scene(own_kernel)
    monkeypatch.setattr(UNKNOWN_VALUES, "_logged_at", {})
    counts = UNKNOWN_VALUES.counts.copy()
    await change(own_kernel, changed)
    api = Api(own_kernel)

    with capture_logs() as logs:
        # The next attempt reads what the first one had.
        await own_kernel.expire(there.claimed.turn_id)
        await own_kernel.run_all()
        for name in ("transcriptLoad", "sessionGet"):
            for session in (there.ended, there.live):
                body = message_of(CHANNELS[name], "minimal") | {"session_id": str(session)}
                await api.ask(CHANNELS[name], json.dumps(body).encode())
        revisions = message_of(CHANNELS["transcriptRevisions"], "minimal")
        revisions |= {"session_id": str(there.ended), "seq": 1}
        await api.ask(CHANNELS["transcriptRevisions"], json.dumps(revisions).encode())

    table = changed.name.split(".")[0]
    assert table in {name.split(".")[0] for name in UNKNOWN_VALUES.counts - counts}
    told = [line["column"] for line in logs if line["event"] == "stored_value_unknown"]
    assert table in {name.split(".")[0] for name in told}
    assert len(told) == len(set(told))
    assert UNKNOWN not in str(logs)
