"""Run the checks: servers, a router, the agent, the platform, and the processes of the adapter."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_client import TurnWorker, open_connection
from chatlane_devkit.conform.agent import ConformAgent
from chatlane_devkit.conform.check import Check, Tell, run_checks
from chatlane_devkit.conform.content_checks import CONTENT_CHECKS
from chatlane_devkit.conform.delivery_checks import DELIVERY_CHECKS
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.nats_gate import NatsGate
from chatlane_devkit.conform.report import Finding
from chatlane_devkit.conform.scenes.scene import Scene
from chatlane_devkit.conform.trial import STOPS_WITHIN, Trial
from chatlane_devkit.demo.stack import open_stack

CHECKS: Final = CONTENT_CHECKS + DELIVERY_CHECKS
ACCOUNT: Final = "judged"
AGENT: Final = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A running router that the adapter is judged against.

    Attributes:
        nats_url: Its NATS.
        account: Declared account of the platform.
        agent: Agent of the account; the judge answers for it, so it must have no other worker.
    """

    nats_url: str
    account: str = ACCOUNT
    agent: str = AGENT


def open_installation(directory: Path, scene: Scene) -> AbstractAsyncContextManager[Installation]:
    """Run servers and routers that know the platform, as `open_declared`."""
    return open_declared(
        directory,
        f'[agents.{AGENT}]\nlease = "3s"\n\n'
        f"[platforms.{scene.platform}.accounts.{ACCOUNT}]\n{scene.settings}",
    )


@asynccontextmanager
async def open_declared(directory: Path, declarations: str) -> AsyncIterator[Installation]:
    """Run servers and routers without workers for the length of the block.

    Args:
        directory: For their files.
        declarations: Agent and account, as in chatlane.toml.

    Raises:
        ServerStartError: A process ended by itself or did not start.
    """
    declared = directory / "declared.toml"
    declared.write_text(declarations, "utf-8")
    async with open_stack(
        directory,
        lambda _: None,
        think=timedelta(),
        user_config=declared,
        has_workers=False,
    ) as stack:
        yield Installation(nats_url=stack.nats.url)


async def judge_adapter(
    command: str,
    installation: Installation,
    scene: Scene,
    directory: Path,
    *,
    checks: Sequence[Check[Trial]] = CHECKS,
    patience: float = 20.0,
    tell: Tell = lambda _: None,
) -> list[Finding]:
    """Judge an adapter and return what was found, in the order of the checks.

    Args:
        command: Command line that starts the adapter.
        installation: A running router.
        scene: The platform that the adapter talks to.
        directory: For the output of the adapter.
        checks: What is checked. If the first check fails, the others are skipped.
        patience: How long a check waits for something that should happen, in seconds.
        tell: Called with each finding.
    """
    agent = ConformAgent()
    gate = NatsGate(installation.nats_url)
    async with gate.opened(), _answering(installation, agent):
        variables = scene.variables(gate.url, installation.account)
        first = JudgedProcess(command, variables, directory / "adapter.log")
        others = variables | scene.variables_of_second()
        second = JudgedProcess(command, others, directory / "second-adapter.log")
        trial = Trial(
            scene=scene, agent=agent, gate=gate, adapter=first, second=second, patience=patience
        )
        try:
            return await run_checks(checks, trial, tell)
        finally:
            for process in (first, second):
                await process.stop(STOPS_WITHIN)


@asynccontextmanager
async def _answering(installation: Installation, agent: ConformAgent) -> AsyncIterator[None]:
    """Answer for the agent for the length of the block."""
    async with open_connection(installation.nats_url, name="conform agent") as client:
        worker = TurnWorker(client, installation.agent, agent.answer, slots=8, principal="conform")
        working = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await working
