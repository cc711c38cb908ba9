"""Print what a company runs instead of one process: a compose file, or values of the chart."""

import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

from chatlane_bot.bot_config import AGENT, BOT_VARIABLE, TERMINAL, BotConfig, BotConfigError
from chatlane_bot.secret_values import (
    adapter_secrets,
    require_no_declared_secret,
    worker_tables,
)
from chatlane_servers.toml_text import toml_text

_ADAPTER_PREFIX: Final = "CHATLANE_ADAPTER_"
_SECRET_NAME: Final = "chatlane-bot"  # noqa: S105 - the name of an object
_IMAGE: Final = "registry.example.com/chatlane-bot:latest"
_KEY_VARIABLES: Final = {
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "ollama": "OLLAMA_API_KEY",
    "google": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


def compose_of(config: BotConfig) -> str:
    """Return a compose file, as YAML; secrets come from the variables at its beginning.

    Raises:
        BotConfigError: The bot talks in a terminal, which no container has, or its declarations have
            a secret.
    """
    _require_printable(config)
    declarations = {**config.declarations(), "nats": {"url": "nats://nats:4222"}}
    dsn = "postgresql://chatlane:${POSTGRES_PASSWORD:?}@postgres:5432/chatlane"
    program: dict[str, Any] = {
        "build": {"context": ".", "dockerfile_inline": _dockerfile(config)},
        "restart": "unless-stopped",
        "working_dir": "/etc/chatlane",
        "configs": [{"source": "declarations", "target": "/etc/chatlane/chatlane.toml"}],
    }
    storing = {**program, "environment": {"CHATLANE_POSTGRES__DSN": dsn}}
    after: dict[str, Any] = {
        "depends_on": {"prepare": {"condition": "service_completed_successfully"}}
    }
    prepare = "chatlane admin migrate --wait 5m && chatlane admin apply --wait 5m"
    router = {**storing, **after, "command": ["chatlane", "router"], "stop_grace_period": "25s"}
    key = _key_variable(config)
    tables, keys = worker_tables(config, _required, _escaped)
    environment = {BOT_VARIABLE: toml_text(tables), key: f"${{{key}:-}}"}
    adapter, secrets = _adapter_variables(config, "nats://nats:4222")
    shown = {name: _escaped(value) for name, value in adapter.items()}
    services = {
        "nats": {
            "image": "nats:2.15",
            "command": ["--jetstream", "--store_dir", "/data"],
            "restart": "unless-stopped",
            "volumes": ["nats:/data"],
        },
        "postgres": {
            "image": "postgres:18",
            "environment": {
                "POSTGRES_USER": "chatlane",
                "POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:?}",
            },
            "restart": "unless-stopped",
            "stop_signal": "SIGINT",
            "volumes": ["postgres:/var/lib/postgresql"],
        },
        "prepare": {**storing, "restart": "on-failure", "command": ["sh", "-c", prepare]},
        "router-1": router,
        "router-2": router,
        "worker": {
            **program,
            **after,
            "command": ["chatlane", "bot", "worker"],
            "environment": environment,
        },
        "adapter": {
            **program,
            **after,
            "command": ["chatlane", "adapter", config.platform],
            "environment": {**shown, **{name: _required(name) for name in secrets}},
        },
    }
    document = {
        "services": services,
        "configs": {"declarations": {"content": _escaped(toml_text(declarations))}},
        "volumes": {"nats": {}, "postgres": {}},
    }
    about = [
        "All parts of a bot in containers; two routers, so that either may be replaced.",
        "Variables that `docker compose --file FILE up --build` needs: "
        + ", ".join(("POSTGRES_PASSWORD", key, *secrets, *keys)),
    ]
    return _yaml_file(about, document)


def helm_values_of(config: BotConfig) -> str:
    """Return values of the chart in deploy/chart, as YAML.

    Raises:
        BotConfigError: The bot talks in a terminal, which no container has, or its declarations have
            a secret.
    """
    _require_printable(config)
    nats_url = "tls://nats.chatlane.svc:4222"
    name = f"{config.platform}-{config.account}".replace("_", "-")
    key = _key_variable(config)
    tables, keys = worker_tables(config, "$({})".format, _escaped_in_pod)
    adapter, secrets = _adapter_variables(config, nats_url)
    # The chart gives an adapter its address of NATS, its platform and its account.
    own = {f"{_ADAPTER_PREFIX}{name.upper()}" for name in config.adapter}
    values = {
        "natsUrl": nats_url,
        "configuration": toml_text({**config.declarations(), "nats": {"url": nats_url}}),
        "workers": [
            {
                "name": "model-worker",
                "agent": AGENT,
                "slots": 8,
                "replicas": 2,
                "secret": "chatlane-nats-model-worker",
                "image": _IMAGE,
                "args": ["chatlane", "bot", "worker", "--health"],
                "env": [
                    # A variable is replaced in those that follow it.
                    *(_secret_variable(name) for name in (key, *keys)),
                    {"name": BOT_VARIABLE, "value": toml_text(tables)},
                ],
            }
        ],
        "adapters": [
            {
                "name": name,
                "account": f"{config.platform}/{config.account}",
                "secret": f"chatlane-nats-{name}",
                "image": _IMAGE,
                "args": ["chatlane", "adapter", config.platform],
                "env": [
                    *(
                        {"name": name, "value": _escaped_in_pod(value)}
                        for name, value in adapter.items()
                        if name in own
                    ),
                    *(_secret_variable(name) for name in secrets),
                ],
            }
        ],
    }
    about = [
        "Values of the chart in deploy/chart: `helm upgrade --install chatlane deploy/chart --values FILE`.",
        "NATS, Postgres and the users of NATS: deploy/kubernetes/README.md.",
        f"The Secret {_SECRET_NAME} has {', '.join((key, *secrets, *keys))}.",
        f"Image of workers and adapters: `pip install '{_requirement(config)}'` on a Python image.",
    ]
    return _yaml_file(about, values)


def _require_printable(config: BotConfig) -> None:
    if config.platform == TERMINAL:
        raise BotConfigError("a terminal is no platform of a server: give --telegram or --platform")
    require_no_declared_secret(config)


def _adapter_variables(config: BotConfig, nats_url: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables of the adapter with their values, and those that hold secrets."""
    secrets = tuple(f"{_ADAPTER_PREFIX}{name.upper()}" for name in adapter_secrets(config))
    given = config.adapter_environment(nats_url)
    return {name: value for name, value in given.items() if name not in secrets}, secrets


def _key_variable(config: BotConfig) -> str:
    provider = config.model.name.partition(":")[0]
    return _KEY_VARIABLES.get(provider, f"{provider.upper().replace('-', '_')}_API_KEY")


def _requirement(config: BotConfig) -> str:
    return f"chatlane[{config.platform}]=={metadata.version('chatlane')}"


def _dockerfile(config: BotConfig) -> str:
    return (
        "FROM python:3.13-slim\n"
        f"RUN pip install --no-cache-dir '{_requirement(config)}'\n"
        "USER 65532:65532\n"
    )


def _secret_variable(name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": _SECRET_NAME, "key": name}}}


def _required(variable: str) -> str:
    return f"${{{variable}:?}}"


def _escaped(text: str) -> str:
    """Return text for a compose file, which replaces what looks like a variable."""
    return text.replace("$", "$$")


def _escaped_in_pod(text: str) -> str:
    """Return text for the environment of a pod, in which `$(NAME)` is a variable."""
    return text.replace("$(", "$$(")


def _yaml_file(about: list[str], document: dict[str, Any]) -> str:
    return "".join(f"# {line}\n" for line in about) + "\n".join(_yaml(document)) + "\n"


def _yaml(value: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield a table as lines of YAML: JSON is YAML, blocks are for people."""
    blank = "  " * depth
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield f"{blank}{key}:"
            yield from _yaml(item, depth + 1)
        elif isinstance(item, str) and "\n" in item:
            yield f"{blank}{key}: |"
            yield from (f"{blank}  {line}" for line in item.splitlines())
        elif isinstance(item, list) and any(isinstance(it, dict) for it in item):
            yield f"{blank}{key}:"
            for entry in item:
                first, *rest = _yaml(entry, depth + 2)
                yield f"{blank}  - {first.strip()}"
                yield from rest
        else:
            yield f"{blank}{key}: {json.dumps(item, ensure_ascii=False)}"
