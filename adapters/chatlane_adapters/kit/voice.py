"""Turn voice messages into words with a command of the operator."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 100_000
# A recogniser uses a whole processor, or several.
_AT_ONCE: Final = 2
# The command needs none of the settings of an adapter, which contain its token.
_SETTINGS: Final = "CHATLANE_"


class VoiceCommand:
    """Runs the command for one file at a time.

    Args:
        command: The program and its arguments; the path of a file is added.
        seconds: How long it may take for one file.
    """

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def words(self, path: Path) -> str | None:
        """Return the words of a file; None if the command fails or finds no words."""
        async with self._room:
            try:
                async with asyncio.timeout(self._seconds):
                    output = await self._run(path)
            except TimeoutError:
                _log.warning("voice_not_understood", extra={"error": "too slow"})
                return None
            except OSError as error:
                _log.warning("voice_not_understood", extra={"error": type(error).__name__})
                return None
        words = output.decode("utf-8", "replace").strip()
        if len(words) > _MOST_CHARACTERS:
            _log.warning("voice_not_understood", extra={"error": "too many words"})
            return None
        return words or None

    async def _run(self, path: Path) -> bytes:
        """Return the output of the command; nothing if it fails."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            str(path),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: it for name, it in os.environ.items() if not name.startswith(_SETTINGS)},
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                # With what it has started.
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            _log.warning("voice_not_understood", extra={"error": f"exit {process.returncode}"})
            return b""
        return output
