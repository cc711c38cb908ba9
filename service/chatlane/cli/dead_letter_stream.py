"""Dead letters as the stream DEAD announces them, for users without a database account."""

from pathlib import Path

from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import open_nats, read_client_settings
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadLetter, DeadReason
from chatlane_schemas.topology.streams import StreamName


async def read_announced(
    config: Path | None, limit: int, reason: DeadReason | None
) -> list[DeadLetter]:
    """Return the announced dead letters of a reason, newest first.

    Raises:
        CommandError: There is no stream DEAD.
    """
    from chatlane.nats.jetstream import JetStream

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
            letter = None if message is None else _decoded(message.body)
            if letter is not None and reason in {None, letter.reason}:
                letters.append(letter)
            sequence -= 1
        return letters


def _decoded(body: bytes) -> DeadLetter | None:
    try:
        return decode(DeadLetter, body)
    except DecodeError:
        # A newer release announced it, with a reason that this release does not know.
        return None
