"""Print what a company runs instead of one process: a compose file, or values of the chart."""

import json
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

from chatlane_bot.bot_config import (
    AGENT,
    BOT_VARIABLE,
    TERMINAL,
    BotConfig,
    BotConfigError,
    key_variable,
)
from chatlane_bot.secret_values import (
    adapter_secrets,
    require_no_declared_secret,
    worker_tables,
)
from chatlane_servers.toml_text import toml_text

_ADAPTER_PREFIX: Final = "CHATLANE_ADAPTER_"
_IMAGE: Final = "registry.example.com/chatlane-bot"
_SECRETS: Final = "/run/secrets/chatlane"
# As deploy/nats/nats.conf: a stored message is on the disk.
_NATS_CONFIGURATION: Final = """\
listen: 0.0.0.0:4222
jetstream {
  store_dir: /data
  sync_interval: always
}
"""


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
        "image": f"chatlane-bot:{metadata.version('chatlane')}",
        "restart": "unless-stopped",
        "working_dir": "/etc/chatlane",
        "configs": [{"source": "declarations", "target": "/etc/chatlane/chatlane.toml"}],
    }
    storing = {**program, "environment": {"CHATLANE_POSTGRES__DSN": dsn}}
    after: dict[str, Any] = {
        "depends_on": {"prepare": {"condition": "service_completed_successfully"}}
    }
    prepare = "chatlane admin migrate --wait 5m && chatlane admin apply --wait 5m"
    router = {**storing, **after, "command": ["router"], "stop_grace_period": "25s"}
    key = key_variable(config.model.name)
    tables, keys = worker_tables(config, _required, _escaped)
    environment = {BOT_VARIABLE: toml_text(tables), key: f"${{{key}:-}}"}
    adapter, secrets = _adapter_variables(config, "nats://nats:4222")
    shown = {name: _escaped(value) for name, value in adapter.items()}
    services = {
        "nats": {
            "image": "nats:2.15",
            "command": ["--config", "/etc/nats/chatlane.conf"],
            "restart": "unless-stopped",
            "configs": [{"source": "nats", "target": "/etc/nats/chatlane.conf"}],
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
        "prepare": {
            # Other services use the image that this one builds.
            "build": {"context": ".", "dockerfile_inline": _escaped(_dockerfile(config))},
            **storing,
            "restart": "on-failure",
            "entrypoint": ["sh", "-c"],
            "command": [prepare],
        },
        "router-1": router,
        "router-2": router,
        "worker": {
            **program,
            **after,
            "command": ["bot", "worker"],
            "environment": environment,
            "stop_grace_period": "25s",
        },
        "adapter": {
            **program,
            **after,
            "command": ["adapter", config.platform],
            "environment": {**shown, **{name: _required(name) for name in secrets}},
        },
    }
    document = {
        "services": services,
        "configs": {
            "declarations": {"content": _escaped(toml_text(declarations))},
            "nats": {"content": _NATS_CONFIGURATION},
        },
        "volumes": {"nats": {}, "postgres": {}},
    }
    about = [
        "All parts of a bot in containers; two routers, so that either may be replaced.",
        "`docker compose --file FILE up --build` (2.23 or newer) needs these variables: "
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
    tables, keys = worker_tables(config, "$({})".format, _escaped_in_pod)
    if config.model.api_key_file is not None or not config.model.name.startswith("ollama:"):
        key = key_variable(config.model.name)
        tables["model"]["api_key_file"] = f"{_SECRETS}/{key}"
        keys = (key, *keys)
    adapter, secrets = _adapter_variables(config, nats_url)
    # The chart gives an adapter its address of NATS, its platform and its account.
    own = {f"{_ADAPTER_PREFIX}{setting.upper()}" for setting in config.adapter}
    worker: dict[str, Any] = {
        "name": "model-worker",
        "agent": AGENT,
        "slots": 8,
        "replicas": 2,
        "secret": "chatlane-nats-model-worker",
        "args": ["bot", "worker", "--health"],
        "env": [{"name": BOT_VARIABLE, "value": toml_text(tables)}],
    }
    account: dict[str, Any] = {
        "name": name,
        "account": f"{config.platform}/{config.account}",
        "secret": f"chatlane-nats-{name}",
        "env": [
            {"name": variable, "value": _escaped_in_pod(value)}
            for variable, value in adapter.items()
            if variable in own
        ],
    }
    about = [
        "Values of the chart in deploy/chart: `helm upgrade --install chatlane deploy/chart --values FILE`.",
        "NATS, Postgres and the users of NATS: deploy/kubernetes/README.md.",
        "The image, for all parts; name it by its digest once it is pushed:",
        *(f"  {line}" for line in _dockerfile(config).splitlines()),
    ]
    if keys:
        worker["files"] = "chatlane-bot-worker"
        about.append(f"The Secret chatlane-bot-worker has the keys {', '.join(keys)}.")
    if secrets:
        account["tokens"] = "chatlane-bot-adapter"
        named = ", ".join(secrets).lower()
        about.append(f"The Secret chatlane-bot-adapter has the keys {named}.")
    values = {
        "image": {"repository": _IMAGE, "tag": metadata.version("chatlane")},
        "natsUrl": nats_url,
        "configuration": toml_text({**config.declarations(), "nats": {"url": nats_url}}),
        "workers": [worker],
        "adapters": [account],
    }
    return _yaml_file(about, values)


def _require_printable(config: BotConfig) -> None:
    if config.platform == TERMINAL:
        raise BotConfigError("a terminal is no platform of a server: give --telegram or --platform")
    require_no_declared_secret(config)


def _adapter_variables(config: BotConfig, nats_url: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables of the adapter with their values, and those that hold secrets."""
    secrets = tuple(f"{_ADAPTER_PREFIX}{name.upper()}" for name in adapter_secrets(config))
    given = config.adapter_environment(nats_url)
    # A file with a secret is on the machine of the bot.toml.
    hidden = {*secrets, *(f"{name}_FILE" for name in secrets)}
    return {name: value for name, value in given.items() if name not in hidden}, secrets


def _requirement(config: BotConfig) -> str:
    return f"chatlane[{config.platform}]=={metadata.version('chatlane')}"


def _dockerfile(config: BotConfig) -> str:
    return (
        "ARG PYTHON_IMAGE=python:3.13-slim\n"
        "FROM ${PYTHON_IMAGE}\n"
        "RUN python -m venv /opt/chatlane && \\\n"
        "    /opt/chatlane/bin/pip install --no-cache-dir uv && \\\n"
        "    /opt/chatlane/bin/uv pip install --no-cache --python /opt/chatlane \\\n"
        f"    '{_requirement(config)}'\n"
        "ENV PATH=/opt/chatlane/bin:${PATH}\n"
        "WORKDIR /etc/chatlane\n"
        "USER 65532:65532\n"
        'ENTRYPOINT ["chatlane"]\n'
    )


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
