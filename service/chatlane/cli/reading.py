"""A look at what was set aside that needs no database account."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import typer

from chatlane.cli.options import AsJson, Config, Limit, open_nats, read_client_settings
from chatlane.cli.reporting import CommandError
from chatlane.cli.terminal import local_time, open_console, plain, print_json, table
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadLetter
from chatlane_schemas.streams import StreamName


def dead(config: Config = None, *, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List dead letters with their reasons, the newest first.

    These are messages that were set aside: they could not be read, placed or delivered. What
    they said stays in the database, in table dead_letters.
    """
    letters = asyncio.run(_dead_letters(config, limit))
    if as_json:
        print_json(letters)
    else:
        _print_dead(letters)


async def _dead_letters(config: Path | None, limit: int) -> list[DeadLetter]:
    from chatlane.bus.jetstream import JetStream

    settings = read_client_settings(config)
    async with open_nats(settings, "chatlane-cli") as client:
        jetstream = JetStream(client)
        state = await jetstream.find_stream(StreamName.DEAD)
        if state is None:
            raise CommandError("there is no stream DEAD: run `chatlane admin apply`")
        letters: list[DeadLetter] = []
        sequence = state.last_sequence
        while sequence >= max(state.first_sequence, 1) and len(letters) < limit:
            message = await jetstream.find_message(StreamName.DEAD, sequence)
            if message is not None and (letter := _letter(message.body)) is not None:
                letters.append(letter)
            sequence -= 1
        return letters


def _letter(body: bytes) -> DeadLetter | None:
    try:
        return decode(DeadLetter, body)
    except DecodeError:
        # Of a newer release, with a reason this one does not know.
        return None


def _print_dead(letters: Sequence[DeadLetter]) -> None:
    if not letters:
        typer.echo("there are no dead letters")
        return
    shown = table("when", "stage", "reason", "position", "bytes", "detail", "digest")
    for letter in letters:
        position = "" if letter.sequence is None else f"{letter.log}#{letter.sequence}"
        shown.add_row(
            local_time(letter.at),
            letter.stage,
            letter.reason,
            position,
            str(letter.size_bytes),
            plain(letter.detail),
            letter.digest[:12],
        )
    open_console().print(shown)
