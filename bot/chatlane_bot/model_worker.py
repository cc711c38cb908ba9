"""The worker of a bot: answers turns with a language model and the tools of MCP servers."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic_ai import Agent, ModelSettings
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model

from chatlane.config.settings import load_settings
from chatlane.connections import bus_options
from chatlane.nats.connection import open_bus
from chatlane.observability.logs import configure_logging, get_logger
from chatlane_bot.bot_config import (
    AGENT,
    BotConfig,
    BotConfigError,
    ModelTable,
    ToolTable,
    key_variable,
    read_secret,
)
from chatlane_client import TitleMaker, TurnWorker
from chatlane_client.frameworks.pydantic_ai import TurnOptions, turn_handler
from chatlane_schemas import ModelOverride

if TYPE_CHECKING:
    from fastmcp.client.transports import ClientTransport
    from pydantic_ai.toolsets import AbstractToolset

SLOTS: Final = 8
# Inside the time that a supervisor or an orchestrator gives.
_HAND_BACK_AFTER: Final = timedelta(seconds=8)
_TOOL_PATIENCE: Final = timedelta(minutes=5)
_TITLE_INSTRUCTIONS: Final = (
    "Name the conversation that begins with this message and this answer: at most six words, in the "
    "language of the message, without quotation marks. Answer with the name only."
)
_TITLE_CHARACTERS: Final = 2000

_log: Final = get_logger("worker")


def model_of(table: ModelTable) -> Model:
    """Return the model of a table.

    Raises:
        BotConfigError: The provider is unknown, or there is no key for it.
    """
    provider, _, name = table.name.partition(":")
    key = None if table.api_key_file is None else read_secret(table.api_key_file)
    base_url = table.base_url or os.environ.get(f"{provider.upper()}_BASE_URL")
    try:
        match provider:
            case "openai" | "openai-chat" if base_url is not None or key is not None:
                from pydantic_ai.models.openai import OpenAIChatModel
                from pydantic_ai.providers.openai import OpenAIProvider

                # Endpoints of other providers, which speak `/chat/completions` and may need no key.
                known = key or os.environ.get("OPENAI_API_KEY") or "none"
                return OpenAIChatModel(
                    name, provider=OpenAIProvider(base_url=base_url, api_key=known)
                )
            case "anthropic" if base_url is not None or key is not None:
                from pydantic_ai.models.anthropic import AnthropicModel
                from pydantic_ai.providers.anthropic import AnthropicProvider

                known = key or os.environ.get("ANTHROPIC_API_KEY") or "none"
                return AnthropicModel(
                    name, provider=AnthropicProvider(base_url=base_url, api_key=known)
                )
            case "ollama":
                from pydantic_ai.models.ollama import OllamaModel
                from pydantic_ai.providers.ollama import OllamaProvider

                known = base_url or "http://127.0.0.1:11434/v1"
                return OllamaModel(name, provider=OllamaProvider(base_url=known, api_key=key))
            case _ if table.base_url is not None:
                raise BotConfigError(
                    f"model {table.name}: `base_url` is for openai, anthropic and ollama"
                )
            case _:
                if key is not None:
                    os.environ[key_variable(table.name)] = key
                return infer_model(table.name)
    except (UserError, ImportError) as exc:
        raise BotConfigError(f"model {table.name}: {exc}") from exc


def agent_of(config: BotConfig, model: Model) -> Agent[None, str]:
    """Return the agent of a bot, with its tools."""
    return Agent(
        model,
        instructions=config.instructions,
        model_settings=ModelSettings(**config.model.settings),  # type: ignore[typeddict-item]
        toolsets=[_toolset(table) for table in config.tools],
        retries=2,
    )


def title_maker(config: BotConfig, model: Model) -> TitleMaker:
    """Return a function that asks the model for the title of a conversation."""
    namer = Agent(
        model,
        instructions=_TITLE_INSTRUCTIONS,
        model_settings=ModelSettings(**config.model.settings),  # type: ignore[typeddict-item]
    )

    async def make(question: str, answer: str) -> str:
        message, reply = question[:_TITLE_CHARACTERS], answer[:_TITLE_CHARACTERS]
        run = await namer.run(f"Message:\n{message}\n\nAnswer:\n{reply}")
        return run.output.strip().strip("\"'“”„«»*#`")

    return make


def chosen_model(table: ModelTable, override: ModelOverride) -> Model:
    """Return the model that a person chose: another one of the same provider and endpoint."""
    provider, _, name = table.name.partition(":")
    return model_of(table.model_copy(update={"name": f"{provider}:{override.model or name}"}))


def _toolset(table: ToolTable) -> "AbstractToolset[None]":
    # 40 MiB that a bot without tools does not need.
    from fastmcp.client import Client
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset

    transport: ClientTransport
    if table.command is not None:
        # A server gets these variables only, not the keys of the models.
        known = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        transport = StdioTransport(table.command, [*table.args], env={**known, **table.env})
    else:
        transport = StreamableHttpTransport(table.url or "", headers={**table.headers})
    client = Client(transport, timeout=_TOOL_PATIENCE.total_seconds())
    toolset = MCPToolset[None](client, id=table.name).prefixed(table.name)
    return toolset.approval_required() if table.approval else toolset


async def serve(config: BotConfig, environment: Mapping[str, str], *, has_health: bool) -> None:
    """Answer turns until SIGTERM or SIGINT.

    Args:
        config: What the bot is.
        environment: Names the chatlane.toml and settings, as for every command of chatlane.
        has_health: Serve `/livez` and `/readyz` on http.host and http.port.
    """
    settings = load_settings(environ=environment)
    configure_logging(settings.log.level, json=settings.log.format != "console")
    model = model_of(config.model)
    agent = agent_of(config, model)
    handler = turn_handler(
        agent,
        model_of=partial(chosen_model, config.model),
        options=TurnOptions(has_local_files=True),
    )
    options = bus_options(settings, "model worker")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(agent)
        bus = await stack.enter_async_context(open_bus(options))
        if has_health:
            from chatlane.observability.health import open_worker_health

            health = open_worker_health(
                lambda: bus.is_connected, settings.http.host, settings.http.port
            )
            await stack.enter_async_context(health)
        worker = TurnWorker(
            bus.client,
            AGENT,
            handler,
            slots=SLOTS,
            principal=settings.nats.principal or AGENT,
            hand_back_after=_HAND_BACK_AFTER,
            titles=title_maker(config, model) if config.titles else None,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        _log.info("worker_started", agent=AGENT)
        await worker.run()
