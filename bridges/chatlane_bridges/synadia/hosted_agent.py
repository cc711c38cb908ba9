"""Answer turns with an agent that is found on NATS."""

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final

from synadia_ai.agents import (
    Agent,
    Agents,
    Attachment,
    DiscoverFilter,
    Envelope,
    NatsAgentError,
    Query,
    ResponseChunk,
    ValidationError,
)

from chatlane_bridges.synadia.settings import EACH_SESSION, WorkerSettings
from chatlane_client import AgentUnavailableError, StepError, Turn, TurnFailedError
from chatlane_client.frameworks.shared.failures import status_failure
from chatlane_client.frameworks.shared.files import load_file
from chatlane_client.frameworks.shared.options import TurnOptions, instructions_of
from chatlane_schemas.content.prompts import prompt_of

_log: Final = logging.getLogger("chatlane_bridges")

# The lease of the turn bounds a prompt; the SDK wants a number.
_LONGEST_PROMPT: Final = timedelta(days=8)
_HISTORY_ROWS: Final = 100
# Base64 is longer than the file by a third; the rest is for names and JSON.
_FILE_GROWTH: Final = 1.34
_SPARE_BYTES: Final = 4096
_CODE: Final = re.compile(r"service error (\d{3})\b")
_REPEATED: Final = (
    "[This request may have reached you before: the connection was lost before your answer. "
    "Do not repeat what you have done already.]"
)


class HostedAgent:
    """Prompts an agent with what people say, and gives its answer to the turn."""

    def __init__(self, agents: Agents, settings: WorkerSettings) -> None:
        self._agents = agents
        self._settings = settings

    async def answer(self, turn: Turn) -> str:
        """Return the answer of the agent.

        Raises:
            AgentUnavailableError: The agent is not there, or asks to be tried later.
            TurnFailedError: The agent refused the prompt or failed, or the conversation is not its.
        """
        only = self._settings.session_key
        if only is not None and turn.session_key != only:
            raise TurnFailedError("the worker answers another conversation")
        prompt = await self._prompt(turn)
        # Another prompt is another step: an edit of a message must be answered.
        name = f"prompt {hashlib.sha256(prompt.encode()).hexdigest()[:16]}"
        chunks: list[str] = []
        try:
            return await turn.step(name, self._ask, turn, prompt, chunks)
        except StepError:
            # The answer is too long to be kept for another attempt.
            return "".join(chunks)
        except asyncio.CancelledError:
            if turn.cancel_reason is None or not chunks:
                raise
            return "".join(chunks)

    async def _prompt(self, turn: Turn) -> str:
        parts: list[str | None] = []
        if self._settings.forgets:
            rows = await turn.history(_HISTORY_ROWS)
            parts += [instructions_of(turn), prompt_of(rows)]
        elif turn.session_is_new:
            parts.append(instructions_of(turn))
        parts.append(turn.prompt)
        return "\n\n".join(part for part in parts if part)

    async def _ask(self, turn: Turn, prompt: str, said: list[str]) -> str:
        agent = await self._find(turn)
        text = prompt if turn.attempt == 1 else f"{_REPEATED}\n\n{prompt}"
        files = [file async for file in _files(turn, agent, len(text.encode()))]
        # A host that knows `turn` and `attempt` can tell a repeated prompt.
        envelope = Envelope.model_validate(
            {
                "prompt": text,
                "attachments": files or None,
                "turn": str(turn.id),
                "attempt": turn.attempt,
            }
        )
        try:
            # The SDK types its generator as an iterator.
            stream: Any = agent.prompt(
                envelope,
                timeout=self._settings.quiet_for.total_seconds(),
                max_wait_s=_LONGEST_PROMPT.total_seconds(),
            )
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    await self._take(turn, chunk, said)
        except ValidationError as exc:
            raise TurnFailedError(f"the prompt cannot be sent: {type(exc).__name__}") from None
        except NatsAgentError as exc:
            raise _failure(exc) from None
        return "".join(said)

    async def _find(self, turn: Turn) -> Agent:
        session = self._settings.session.replace(EACH_SESSION, str(turn.session_id))
        wanted = DiscoverFilter(
            agent=self._settings.host, owner=self._settings.owner, session_name=session
        )
        found = await self._agents.discover(filter=wanted)
        if not found:
            raise AgentUnavailableError("no such agent is on NATS")
        return found[0]

    async def _take(self, turn: Turn, chunk: object, said: list[str]) -> None:
        match chunk:
            case ResponseChunk():
                text = chunk.text + "".join(_mentions(chunk.attachments or ()))
                said.append(text)
                await turn.delta(text)
            case Query():
                text = chunk.prompt + "".join(_mentions(chunk.attachments or ()))
                answer = await turn.ask(text, within=self._settings.answer_within)
                # Without an answer the agent decides, after a time of its own.
                if answer.value:
                    await chunk.reply(answer.value)
            case _:
                # A sign of life.
                pass


async def _files(turn: Turn, agent: Agent, used_bytes: int) -> AsyncIterator[Attachment]:
    """Yield the files of the messages as long as they fit; the prompt mentions all of them."""
    endpoint = agent.prompt_endpoint
    if not endpoint.attachments_ok or endpoint.max_payload_bytes is None:
        return
    room = endpoint.max_payload_bytes - used_bytes - _SPARE_BYTES
    for message in turn.messages:
        for number, file in enumerate(message.attachments, 1):
            if room <= 0:
                return
            options = TurnOptions(max_file_bytes=int(room / _FILE_GROWTH))
            loaded = await load_file(file, options)
            if loaded is not None:
                room -= int(len(loaded.data) * _FILE_GROWTH) + _SPARE_BYTES
                yield Attachment.from_bytes(loaded.name or f"file-{number}", loaded.data)


def _mentions(files: Iterable[Attachment]) -> Iterable[str]:
    """Yield a line for each file of an agent, which a chat cannot get: messages carry no bytes."""
    for file in files:
        yield f"\n[file not delivered: {file.filename}]"


def _failure(exc: NatsAgentError) -> Exception:
    """Return an error of the SDK for `raise`, without its text, which may quote messages."""
    code = _CODE.search(str(exc))
    # A host answers 500 to every error of its handler, so the prompt may be the cause.
    if code is not None and code[1] != "500":
        return status_failure("the agent", int(code[1]), ())
    _log.warning("prompt_failed", extra={"error": type(exc).__name__})
    return TurnFailedError(type(exc).__name__, retry=True)
