"""Each text that a chat gets is in the language of its platform."""

import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane.domain.catalog import Limit, Limits
from chatlane.domain.notices import Notices
from chatlane.domain.policy import ResetPolicy
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Fields, at, catalog, event

pytestmark = pytest.mark.integration

GERMAN = Notices(
    tomllib.loads((Path(__file__).parents[3] / "examples/notices.de.toml").read_text("utf-8"))
)
ANN: Fields = {"chat": "701", "user": "701"}


async def test_replies_to_commands(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(notices=GERMAN))
    await kernel.say(event(**ANN, mid="1", text="{count} figs"), at("09:00"))
    await kernel.run_all()
    for number, text in enumerate(("/title {title}", "/undo", "/new", "/help"), 2):
        await kernel.say(event(**ANN, mid=str(number), text=text), at(f"09:0{number}"))
    title, undone, started, commands = await kernel.told()
    assert title == "Dieses Gespräch heißt “{title}”."
    assert undone == "Zurückgenommen, ab: {count} figs"
    assert started == "Ein neues Gespräch beginnt. Das vorige bleibt erhalten."
    assert commands.splitlines()[0] == "/new [Titel]: ein neues Gespräch beginnen"


async def test_a_failed_and_a_lost_turn(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(notices=GERMAN))
    asked = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    claimed = await kernel.claim_live(asked.session)
    await kernel.answer(claimed, outcome="failed", parts=[], error="gone")
    asked = await kernel.say(event(**ANN, mid="2", text="b"), at("09:05"))
    for _ in range(3):
        lost = await kernel.claim_live(asked.session)
        await kernel.expire(lost.turn_id)
    failed, stuck = await kernel.told()
    assert failed.startswith("Entschuldigung, das konnte ich nicht beantworten.")
    assert stuck.startswith("Entschuldigung, ich wurde immer wieder unterbrochen.")


async def test_a_new_conversation_and_a_limit(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(
        catalog(
            notices=GERMAN,
            reset=ResetPolicy("idle", idle=timedelta(hours=1)),
            limits=Limits(per_chat=Limit(1, timedelta(minutes=1))),
        )
    )
    await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.run_all()
    for number in range(2, 4):
        await kernel.say(event(**ANN, mid=str(number), text="b"), at("11:00"))
    idle, limited = await kernel.told()
    assert idle == "Das ist ein neues Gespräch: Das letzte endete nach einer Pause."
    assert limited.startswith("Zu viele Nachrichten: Diese wurde nicht angenommen.")
    assert "1 in 1m" in limited
