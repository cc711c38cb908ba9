"""Run `chatlane conform adapter` and `chatlane conform worker`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import typer

from chatlane_devkit.conform import report
from chatlane_devkit.conform.judge_run import (
    CHECKS,
    Installation,
    judge_adapter,
    open_installation,
)
from chatlane_devkit.conform.scenes.discord import open_discord_scene
from chatlane_devkit.conform.scenes.mail import open_mail_scene
from chatlane_devkit.conform.scenes.matrix import open_matrix_scene
from chatlane_devkit.conform.scenes.scene import Scene
from chatlane_devkit.conform.scenes.scripted import open_scripted_scene
from chatlane_devkit.conform.scenes.slack import open_slack_scene
from chatlane_devkit.conform.scenes.telegram import open_telegram_scene
from chatlane_devkit.conform.scenes.whatsapp import open_whatsapp_scene
from chatlane_devkit.conform.worker.checks import WORKER_CHECKS
from chatlane_devkit.conform.worker.judge_run import judge_worker, open_worker_installation
from chatlane_servers.binaries import server_directory
from chatlane_servers.programs import cancel_on_stop_signals

SCENES: Final[Mapping[str, Callable[[], AbstractAsyncContextManager[Scene]]]] = {
    "discord": open_discord_scene,
    "mail": open_mail_scene,
    "matrix": open_matrix_scene,
    "scripted": open_scripted_scene,
    "slack": open_slack_scene,
    "telegram": open_telegram_scene,
    "whatsapp": open_whatsapp_scene,
}
_WRONG_USE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The options that all judged programs share."""

    command: str
    checks: tuple[str, ...]
    nats_url: str | None
    account: str
    agent: str
    patience: float
    is_json: bool


async def run_adapter(order: Order, platform: str, logs: Path) -> int:
    """Judge an adapter, print the report, and return the exit code.

    Args:
        order: What was asked for.
        platform: What the adapter talks to.
        logs: Where the output of the adapter goes.
    """
    cancel_on_stop_signals()
    names = [check.name for check in CHECKS]
    if not _knows({platform, *order.checks}, [*SCENES, *names]):
        return _WRONG_USE
    chosen = [check for check in CHECKS if not order.checks or check.name in order.checks]
    async with AsyncExitStack() as stack:
        scene = await stack.enter_async_context(SCENES[platform]())
        if order.nats_url is None:
            directory = stack.enter_context(server_directory())
            started = open_installation(directory, scene)
            installation = await stack.enter_async_context(started)
        else:
            installation = Installation(
                nats_url=order.nats_url, account=order.account, agent=order.agent
            )
        findings = await judge_adapter(
            order.command,
            installation,
            scene,
            logs,
            checks=chosen,
            patience=order.patience,
            tell=partial(_tell, order),
        )
    return _reported(order, findings, logs)


async def run_worker(order: Order, logs: Path) -> int:
    """Judge a worker, print the report, and return the exit code.

    Args:
        order: What was asked for.
        logs: Where the output of the worker goes.
    """
    cancel_on_stop_signals()
    if not _knows({*order.checks}, [check.name for check in WORKER_CHECKS]):
        return _WRONG_USE
    chosen = [check for check in WORKER_CHECKS if not order.checks or check.name in order.checks]
    async with AsyncExitStack() as stack:
        if order.nats_url is None:
            directory = stack.enter_context(server_directory())
            installation = await stack.enter_async_context(open_worker_installation(directory))
        else:
            installation = Installation(
                nats_url=order.nats_url, account=order.account, agent=order.agent
            )
        findings = await judge_worker(
            order.command,
            installation,
            logs,
            checks=chosen,
            patience=order.patience,
            tell=partial(_tell, order),
        )
    return _reported(order, findings, logs)


def _knows(names: set[str], known: Sequence[str]) -> bool:
    unknown = names.difference(known)
    if unknown:
        typer.echo(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}", err=True)
    return not unknown


def _tell(order: Order, finding: report.Finding) -> None:
    if not order.is_json:
        typer.echo("\n".join(report.as_lines(finding)))


def _reported(order: Order, findings: Sequence[report.Finding], logs: Path) -> int:
    if order.is_json:
        typer.echo(report.as_json(findings))
    else:
        typer.echo(f"\n{report.summary(findings)}; output of the program: {logs}")
    return 0 if report.passes(findings) else 1
