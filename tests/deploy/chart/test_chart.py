"""The Helm chart: the same objects as the overlays, the same policies, and values that are checked."""

import json
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_adapters.matrix.appservice.registration import Registration
from chatlane_adapters.matrix.appservice.settings import AppserviceSettings
from chatlane_adapters.telegram.settings import TelegramSettings
from chatlane_bot.bot_config import bot_config_of
from chatlane_bot.printing import helm_values_of
from chatlane_bridges.mcp.settings import McpSettings
from chatlane_bridges.openai.settings import OpenAiSettings
from chatlane_bridges.webhooks.settings import WebhookSettings
from chatlane_console.settings import ConsoleSettings
from tests.deploy.kubernetes import manifests, test_policies
from tests.deploy.kubernetes.custom_resources import is_custom, validate
from tests.deploy.kubernetes.manifests import (
    ROOT,
    Manifest,
    objects,
    rendered,
    tool,
)
from tests.deploy.kubernetes.test_commands import parsed
from tests.deploy.metric_queries import check_asks_for_what_is_shown

CHART: Final = ROOT / "deploy/chart"
RUN_SECRETS: Final = "/run/secrets/chatlane"
CONFIGURATION: Final = (ROOT / "deploy/kubernetes/overlays/production/chatlane.toml").read_text()
DIGEST: Final = f"sha256:{'1' * 64}"
WORKER: Final = {
    "name": "echo-worker",
    "agent": "main",
    "secret": "chatlane-nats-main-worker",
    "args": ["echo-worker", "--agent", "main", "--slots", "8", "--health"],
}
OUR_ADAPTER: Final = {
    "name": "slack-assistant",
    "account": "slack/assistant",
    "secret": "chatlane-nats-slack-assistant",
    "tokens": "slack-tokens",
    "env": [{"name": "CHATLANE_ADAPTER_LOG_LEVEL", "value": "warning"}],
}
ADAPTER: Final = {
    "name": "telegram-assistant",
    "account": "telegram/assistant",
    "secret": "chatlane-nats-telegram-assistant",
    "image": f"registry.example.com/telegram@{DIGEST}",
}
MATRIX: Final = {
    "name": "matrix",
    "account": "matrix/sales,support",
    "secret": "chatlane-nats-matrix",
    "registration": "matrix-registration",
    "port": 8009,
    "from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "synapse"}}}],
    "env": [{"name": "CHATLANE_ADAPTER_HOMESERVER", "value": "http://synapse:8008"}],
}
CONSOLE: Final = {
    "name": "console",
    "program": "console",
    "secret": "chatlane-nats-console",
    "files": "console-files",
    "operator": {"principal": "console-operator", "secret": "chatlane-nats-console-operator"},
    "env": [
        {"name": "CHATLANE_CONSOLE_PUBLIC_URL", "value": "https://chat.example.com"},
        {"name": "CHATLANE_CONSOLE_SIGN_IN", "value": "proxy"},
        {"name": "CHATLANE_CONSOLE_PROXY_ADDRESSES", "value": "10.0.0.0/8"},
    ],
    "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
}
OPENAI: Final = {
    "name": "front-end",
    "program": "openai",
    "secret": "chatlane-nats-front-end",
    "files": "openai-files",
}
MCP: Final = {
    "name": "on-call",
    "program": "mcp",
    "secret": "chatlane-nats-on-call",
    "files": "mcp-files",
}
WEBHOOKS: Final = {
    "name": "events",
    "program": "webhooks",
    "secret": "chatlane-nats-events",
    "files": "webhooks-files",
    "replicas": 3,
}
VALUES: Final = {
    "image": {"repository": "registry.example.com/chatlane", "digest": DIGEST},
    "configuration": CONFIGURATION,
}
BOT: Final = bot_config_of(
    {
        "platform": "telegram",
        "model": {"name": "openai:gpt-5"},
        "tools": [{"name": "web", "url": "http://tools/", "headers": {"X-Key": "secret"}}],
        "adapter": {"token": "123:secret", "groups": "all"},
    }
)
# As `chatlane bot --print helm` prints them; the image is named once it is pushed.
PRINTED: Final = {**yaml.safe_load(helm_values_of(BOT)), "image": VALUES["image"]}
VARIANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "none": {"size": "small", "workers": [WORKER]},
    "hpa": {
        "autoscaling": "hpa",
        "postgres": {"cidrs": ["10.2.0.0/24", "fd00::/64"]},
        "monitoring": True,
        "monitoringLabels": {"release": "prometheus"},
        "runbooks": "https://git.example.com/chatlane/",
        "externalSecrets": {"store": "vault", "prefix": "chat/"},
        "certManager": {"issuer": "house"},
        "secrets": {"chatlane-nats-ca": "chatlane-nats-tls"},
    },
    "keda": {
        "autoscaling": "keda",
        "size": "large",
        "monitoring": True,
        "workers": [WORKER],
        "adapters": [ADAPTER, OUR_ADAPTER, MATRIX],
        "tracingNamespace": "monitoring",
        "frontEnds": [CONSOLE, OPENAI, MCP, WEBHOOKS],
    },
    "bot": PRINTED,
}
PROMETHEUS: Final = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
}
# Reads values from standard input, and prints each rendered template or the reason why not.
_RENDER: Final = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    values = json.load(sys.stdin)
    try:
        chart.validate_schema(values)
        found = chart.render(values, name="chatlane", namespace="chatlane")
    except helm_python.HelmError as error:
        sys.exit(str(error))
    print("\\n---\\n".join(text for name, text in found.items() if name.endswith(".yaml")))
"""

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def helm(values: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Render the chart; without a Kubernetes, as `helm template` does it."""
    return subprocess.run(  # noqa: S603 # the tool we were given
        [Path(tool("kubectl")).with_name("python"), "-c", _RENDER, CHART],
        check=False,
        capture_output=True,
        text=True,
        input=json.dumps(values),
        timeout=50,
    )


@cache
def chart_objects(variant: str) -> tuple[Manifest, ...]:
    """Return the objects that a variant installs, and its hooks."""
    done = helm({**VALUES, **VARIANTS[variant]})
    assert done.returncode == 0, done.stderr
    return tuple(its for its in yaml.safe_load_all(done.stdout) if its)


@pytest.fixture
def overlay(variant: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the tests of overlays ask the chart."""
    for module in (manifests, test_policies):
        monkeypatch.setattr(module, "rendered", chart_objects)
    return variant


def by_key(found: tuple[Manifest, ...]) -> dict[tuple[str, str], Manifest]:
    return {(its["kind"], its["metadata"]["name"]): its for its in found}


@each_variant
@pytest.mark.parametrize(
    "check",
    [
        test_policies.test_no_pod_gets_a_token_or_the_account_of_others,
        test_policies.test_every_pod_is_restricted,
        test_policies.test_every_container_says_what_it_needs_and_where_it_ends,
        test_policies.test_selectors_mean_the_pods_of_their_own_template,
        test_policies.test_secrets_are_files_and_never_in_the_environment,
        test_policies.test_config_maps_that_pods_mount_are_rendered,
    ],
)
def test_what_is_asked_of_overlays_holds_for_the_chart(
    check: Callable[[str], None], overlay: str
) -> None:
    check(overlay)


@each_variant
def test_everything_of_ours_has_one_image(overlay: str) -> None:
    ours = [its for its in manifests.workloads(overlay) if its.is_ours]
    images = {container["image"] for its in ours for container in its.containers}
    assert images == {f"registry.example.com/chatlane@{DIGEST}"}


@each_variant
def test_every_variable_of_the_chart_is_a_setting(overlay: str, tmp_path: Path) -> None:
    test_policies.test_every_variable_and_secret_of_ours_is_a_setting(overlay, tmp_path)


def as_overlay(text: str) -> str:
    """Return the text of an object with the image and ConfigMap of the overlay."""
    (name,) = [
        its for kind, its in by_key(chart_objects("keda")) if its.startswith("chatlane-conf")
    ]
    (ours,) = [
        its
        for its in objects("production", "ConfigMap")
        if its.startswith("chatlane-configuration")
    ]
    return text.replace(name, ours).replace(f"chatlane@{DIGEST}", f"chatlane@sha256:{'0' * 64}")


def specs(found: tuple[Manifest, ...]) -> dict[tuple[str, str], str]:
    return {
        key: json.dumps(its["spec"], sort_keys=True)
        for key, its in by_key(found).items()
        if "spec" in its
    }


def test_the_chart_installs_what_the_overlay_applies() -> None:
    """Except that it has no Postgres, more clients, and larger routers."""
    chart = {key: as_overlay(text) for key, text in specs(chart_objects("keda")).items()}
    overlay = specs(rendered("production"))
    missing = {key for key in overlay if key not in chart}
    assert {name for _, name in missing} == {"chatlane-postgres", "cloudnative-pg"}
    more = {name for _, name in chart.keys() - overlay.keys()}
    clients = {"echo-worker", "slack-assistant", "telegram-assistant", "matrix"}
    clients |= {"console", "front-end", "on-call", "events"}
    assert more == {"chatlane-smoke-test", "chatlane-requested-erasures", *clients}
    different = {key for key in chart.keys() & overlay.keys() if chart[key] != overlay[key]}
    assert different == {
        ("Deployment", "chatlane-router"),
        ("ScaledObject", "chatlane-router"),
        ("NetworkPolicy", "nats"),
    }


def test_requested_erasures_run_in_the_pod_of_the_erasure_job() -> None:
    found = by_key(chart_objects("keda"))
    by_hand = found["CronJob", "chatlane-erasure"]["spec"]["jobTemplate"]["spec"]["template"]
    spec = found["CronJob", "chatlane-requested-erasures"]["spec"]
    assert (spec["concurrencyPolicy"], spec.get("suspend", False)) == ("Forbid", False)
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] <= 3600
    template = job["template"]
    (container,) = template["spec"]["containers"]
    (container_by_hand,) = by_hand["spec"]["containers"]
    assert parsed(container["args"]) == ["people", "erase-requested"]
    # Labels select the network policies; the rest is rights, Secrets and limits.
    rest = {key: value for key, value in container.items() if key != "args"}
    assert rest == {key: value for key, value in container_by_hand.items() if key != "command"}
    assert template == {**by_hand, "spec": {**by_hand["spec"], "containers": [container]}}


@pytest.mark.parametrize(
    ("values", "schedule"),
    [
        ({}, None),
        ({"frontEnds": [OPENAI]}, None),
        ({"frontEnds": [OPENAI, CONSOLE]}, "*/5 * * * *"),
        ({"frontEnds": [CONSOLE], "erasures": {"schedule": "never"}}, None),
        ({"erasures": {"schedule": "30 3 * * *"}}, "30 3 * * *"),
    ],
)
def test_requested_erasures_run_with_the_console_or_by_their_schedule(
    values: Mapping[str, object], schedule: str | None
) -> None:
    done = helm({**VALUES, **values})
    assert done.returncode == 0, done.stderr
    found = by_key(tuple(part for part in yaml.safe_load_all(done.stdout) if part))
    cron = found.get(("CronJob", "chatlane-requested-erasures"))
    assert (cron and cron["spec"]["schedule"]) == schedule


@each_variant
def test_hooks_bring_tables_and_streams_before_anything_else(variant: str) -> None:
    hooks = {
        its["metadata"]["name"]: its["metadata"]["annotations"]
        for its in chart_objects(variant)
        if "helm.sh/hook" in its["metadata"].get("annotations", {})
    }
    before = {
        name: int(its["helm.sh/hook-weight"])
        for name, its in hooks.items()
        if its["helm.sh/hook"] == "pre-install,pre-upgrade"
    }
    for its in chart_objects(variant):
        if its["kind"] in {"ExternalSecret", "Certificate"}:
            assert before.pop(its["metadata"]["name"]) == -10
    (configuration,) = [name for name in before if name.startswith("chatlane-configuration-")]
    # A Job needs its account and chatlane.toml.
    assert before == {
        configuration: -10,
        "chatlane-admin": -10,
        "chatlane-migrate": 0,
        "chatlane-provision": 10,
    }
    assert {its["helm.sh/hook-delete-policy"] for its in hooks.values()} == {"before-hook-creation"}
    after = {name for name, its in hooks.items() if its["helm.sh/hook"] == "test"}
    assert after == {"chatlane-smoke-test"}


@each_variant
def test_there_is_one_way_to_scale_and_routers_are_as_many_as_the_size_says(variant: str) -> None:
    found = by_key(chart_objects(variant))
    router = found["Deployment", "chatlane-router"]["spec"]
    scalers = [key for key in found if key[0] in {"HorizontalPodAutoscaler", "ScaledObject"}]
    least, scaled = {
        "none": (router.get("replicas"), []),
        "bot": (router.get("replicas"), []),
        "hpa": (3, [("HorizontalPodAutoscaler", "chatlane-router")]),
        "keda": (4, [("ScaledObject", "chatlane-router"), ("ScaledObject", "echo-worker")]),
    }[variant]
    assert sorted(scalers) == scaled
    assert ("replicas" in router) is (variant in {"none", "bot"})
    if variant == "none":
        assert least == 2
    if variant == "hpa":
        assert found[scaled[0]]["spec"]["minReplicas"] == least
    if variant == "keda":
        assert found[scaled[0]]["spec"]["minReplicaCount"] == least


def test_a_client_mounts_its_own_secret_whatever_both_are_called() -> None:
    """The names are those of the example that the templates change."""
    worker = {**WORKER, "name": "old-main-worker", "secret": "chatlane-nats-echo-worker"}
    done = helm({**VALUES, "workers": [worker]})
    assert done.returncode == 0, done.stderr
    found = by_key(tuple(part for part in yaml.safe_load_all(done.stdout) if part))
    spec = found["Deployment", "old-main-worker"]["spec"]["template"]["spec"]
    env = {part["name"]: part["value"] for part in spec["containers"][0]["env"]}
    assert env["CHATLANE_NATS__PRINCIPAL"] == "old-main-worker"
    assert spec["serviceAccountName"] == "old-main-worker"
    (source, _) = spec["volumes"][0]["projected"]["sources"]
    assert source["secret"]["name"] == "chatlane-nats-echo-worker"


def test_an_adapter_is_one_process_that_ends_before_the_next_begins() -> None:
    its = by_key(chart_objects("keda"))["Deployment", "telegram-assistant"]["spec"]
    assert (its["replicas"], its["strategy"]) == (1, {"type": "Recreate"})
    env = {one["name"]: one["value"] for one in its["template"]["spec"]["containers"][0]["env"]}
    assert env == {
        "NATS_URL": "tls://nats.chatlane.svc:4222",
        "PLATFORM": "telegram",
        "ACCOUNT": "assistant",
        "PRINCIPAL": "telegram-assistant",
        "NKEY_SEED_FILE": "/run/secrets/chatlane/nats.nk",
        "TLS_CA_FILE": "/run/secrets/chatlane/nats-ca.crt",
    }


def test_an_adapter_of_ours_runs_the_command_of_its_platform_with_probes() -> None:
    its = by_key(chart_objects("keda"))["Deployment", "slack-assistant"]["spec"]
    container = its["template"]["spec"]["containers"][0]
    assert container["args"] == ["adapter", "slack"]
    assert container["image"] == f"registry.example.com/chatlane@{DIGEST}"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    sources = its["template"]["spec"]["volumes"][0]["projected"]["sources"]
    assert {"secret": {"name": "slack-tokens"}} in sources
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env.pop("CHATLANE_ADAPTER_SECRETS_DIR") == "/run/secrets/chatlane"
    named = {name.removeprefix("CHATLANE_ADAPTER_").lower(): text for name, text in env.items()}
    assert named.keys() <= AdapterSettings.model_fields.keys()
    settings = AdapterSettings(**named)
    assert (settings.account, settings.platform) == ("assistant", "slack")
    assert (settings.health_host, settings.health_port) == ("0.0.0.0", 8080)  # noqa: S104
    assert settings.log_level == "warning"


def test_an_application_service_of_matrix_has_a_user_of_nats_for_each_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_key(chart_objects("keda"))
    pod = found["Deployment", "matrix"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["adapter", "matrix-appservice"]
    for source in pod["volumes"][0]["projected"]["sources"]:
        for item in source["secret"].get("items", ()):
            (tmp_path / item["path"]).write_text(f"{source['secret']['name']}/{item['key']}")
    Registration.new("http://matrix:8009", "example.org").save(tmp_path / "new.yaml")
    (tmp_path / "new.yaml").replace(tmp_path / "registration.yaml")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"].replace(RUN_SECRETS, str(tmp_path)))
    settings = AppserviceSettings()
    assert settings.accounts == ("sales", "support")
    assert (settings.listen_host, settings.listen_port) == ("0.0.0.0", 8009)  # noqa: S104
    users = {}
    for account in map(settings.of_account, settings.accounts):
        assert account.nkey_seed_file is not None
        users[account.principal] = account.nkey_seed_file.read_text()
    assert users == {
        "matrix-sales": "chatlane-nats-matrix/sales",
        "matrix-support": "chatlane-nats-matrix/support",
    }


@pytest.mark.parametrize(
    ("account", "host"),
    [
        ("matrix/sales", "LISTEN_HOST"),
        ("slack/assistant", "LISTEN_HOST"),
        ("telegram/bot", "WEBHOOK_HOST"),
        ("whatsapp/shop", "LISTEN_HOST"),
        ("mail/desk", "LMTP_HOST"),
    ],
)
def test_a_platform_reaches_an_adapter_at_its_port(account: str, host: str) -> None:
    adapter = {**MATRIX, "account": account}
    done = helm({**VALUES, "adapters": [adapter]})
    assert done.returncode == 0, done.stderr
    found = by_key(tuple(part for part in yaml.safe_load_all(done.stdout) if part))
    (container,) = found["Deployment", "matrix"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "platform", "containerPort": 8009} in container["ports"]
    variables = {its["name"]: its["value"] for its in container["env"]}
    assert variables[f"CHATLANE_ADAPTER_{host}"] == "0.0.0.0"  # noqa: S104
    assert variables[f"CHATLANE_ADAPTER_{host.replace('HOST', 'PORT')}"] == "8009"
    (port,) = found["Service", "matrix"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8009, "platform")
    (rule,) = found["NetworkPolicy", "matrix"]["spec"]["ingress"]
    assert rule == {"from": MATRIX["from"], "ports": [{"port": 8009, "protocol": "TCP"}]}


def test_the_bot_that_is_printed_finds_its_settings_and_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_key(chart_objects("bot"))
    pods = {
        name: found["Deployment", name]["spec"]["template"]["spec"]
        for name in ("model-worker", "telegram-bot")
    }
    secrets = {
        name: pod["volumes"][0]["projected"]["sources"][-1]["secret"]["name"]
        for name, pod in pods.items()
    }
    assert secrets == {
        "model-worker": "chatlane-bot-worker",
        "telegram-bot": "chatlane-bot-adapter",
    }
    worker, adapter = (pod["containers"][0] for pod in pods.values())
    assert worker["args"] == ["bot", "worker", "--health"]
    assert worker["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    variables = {one["name"]: one["value"] for one in worker["env"]}
    assert f"{RUN_SECRETS}/OPENAI_API_KEY" in variables["BOT_TOML"]
    assert "$(TOOLS_WEB_HEADERS_X_KEY)" in variables["BOT_TOML"]
    assert variables["CHATLANE_SECRETS_DIR"] == RUN_SECRETS
    # Its name in the Secret is the one that the adapter looks for.
    (tmp_path / "chatlane_adapter_token").write_text("123:secret")
    for one in adapter["env"]:
        monkeypatch.setenv(one["name"], one["value"].replace(RUN_SECRETS, str(tmp_path)))
    settings = TelegramSettings()
    assert (settings.account, settings.platform, settings.groups) == ("bot", "telegram", "all")
    assert settings.token is not None
    assert settings.token.get_secret_value() == "123:secret"
    assert settings.principal == "telegram-bot"


def test_clients_reach_nats_and_postgres_may_be_elsewhere() -> None:
    keda, hpa = by_key(chart_objects("keda")), by_key(chart_objects("hpa"))
    client = {"podSelector": {"matchLabels": {"chatlane/client": "nats"}}}
    assert client in keda["NetworkPolicy", "nats"]["spec"]["ingress"][0]["from"]
    for name in ("echo-worker", "telegram-assistant"):
        labels = keda["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        assert labels["chatlane/client"] == "nats"
        assert keda["NetworkPolicy", name]["spec"]["egress"][0]["ports"][0]["port"] == 4222
    assert ("NetworkPolicy", "postgres") not in hpa
    rules = hpa["NetworkPolicy", "router"]["spec"]["egress"]
    (outside,) = [rule for rule in rules if rule["ports"][0]["port"] == 5432]
    assert outside["to"] == [{"ipBlock": {"cidr": its}} for its in ("10.2.0.0/24", "fd00::/64")]


@pytest.mark.parametrize(
    ("client", "settings", "port"),
    [
        (CONSOLE, ConsoleSettings, 8090),
        (OPENAI, OpenAiSettings, 8091),
        (MCP, McpSettings, 8092),
        (WEBHOOKS, WebhookSettings, 8095),
    ],
)
def test_a_front_end_runs_its_program_with_settings_that_it_has(
    client: Mapping[str, Any],
    settings: type[ConsoleSettings | OpenAiSettings | McpSettings | WebhookSettings],
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = by_key(chart_objects("keda"))
    pod = found["Deployment", client["name"]]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["args"] == [client["program"]]
    prefix = f"CHATLANE_{client['program'].upper()}_"
    variables = {one["name"].removeprefix(prefix).lower() for one in container["env"]}
    assert variables - {"secrets_dir"} <= settings.model_fields.keys()
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"].replace(RUN_SECRETS, str(tmp_path)))
    read = settings()
    assert (read.host, read.port, read.principal) == ("0.0.0.0", port, client["name"])  # noqa: S104
    (served,) = container["ports"]
    assert served["containerPort"] == port
    assert found["Service", client["name"]]["spec"]["ports"][0]["port"] == port
    (mounted,) = [its["projected"] for its in pod["volumes"] if "projected" in its]
    assert {"secret": {"name": client["files"]}} in mounted["sources"]
    allowed = found["NetworkPolicy", client["name"]]["spec"]["ingress"]
    sources = [rule["from"] for rule in allowed if rule["from"] != [PROMETHEUS]]
    assert sources == [its for its in [client.get("from")] if its]


def test_webhooks_are_sent_by_one_process_that_ends_before_the_next_begins() -> None:
    spec = by_key(chart_objects("keda"))["Deployment", "events"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    container = spec["template"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}


@pytest.mark.parametrize(
    ("name", "port"), [("slack-assistant", 8080), ("matrix", 8080), ("events", 8095)]
)
def test_prometheus_reaches_the_clients_whose_alerts_it_has(name: str, port: int) -> None:
    found = by_key(chart_objects("keda"))
    monitored = found["PodMonitor", name]["spec"]
    template = found["Deployment", name]["spec"]["template"]
    assert monitored["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitored["podMetricsEndpoints"]
    ports = template["spec"]["containers"][0]["ports"]
    assert {"name": endpoint["port"], "containerPort": port} in ports
    rules = found["NetworkPolicy", name]["spec"]["ingress"]
    (rule,) = [rule for rule in rules if rule["from"] == [PROMETHEUS]]
    assert rule["ports"] == [{"port": port, "protocol": "TCP"}]


def test_nothing_is_scraped_that_shows_no_metrics() -> None:
    found = by_key(chart_objects("keda"))
    monitored = {name for kind, name in found if kind == "PodMonitor"}
    assert monitored == {"slack-assistant", "matrix", "events"}
    # It has an image of its own, of which the chart knows no port.
    assert ("PodMonitor", "telegram-assistant") not in found
    assert found["NetworkPolicy", "telegram-assistant"]["spec"]["ingress"] == []


def test_monitors_and_alerts_have_the_labels_and_runbooks_of_the_installation() -> None:
    found = by_key(chart_objects("hpa"))
    for kind, name in (("ServiceMonitor", "chatlane-router"), ("PrometheusRule", "chatlane")):
        assert found[kind, name]["metadata"]["labels"]["release"] == "prometheus"
    rules = found["PrometheusRule", "chatlane"]["spec"]["groups"][0]["rules"]
    urls = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in rules}
    assert urls == {"https://git.example.com/chatlane/deploy/kubernetes/runbook.md"}


def test_external_secrets_are_those_that_pods_and_servers_mount() -> None:
    found = chart_objects("hpa")
    stored = {
        its["spec"]["target"]["name"]: {one["secretKey"] for one in its["spec"]["data"]}
        for its in found
        if its["kind"] == "ExternalSecret"
    }
    mounted = {
        secret["name"]: {item["key"] for item in secret["items"]}
        for its in manifests.workloads_of(found)
        for volume in its.pod["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        if (secret := source.get("secret"))
    }
    # Its authority comes with the certificate, which cert-manager keeps.
    (certificate,) = [its["spec"] for its in found if its["kind"] == "Certificate"]
    assert mounted.pop(certificate["secretName"]) == {"ca.crt"}
    assert {"nats.chatlane.svc", "*.nats-headless"} <= set(certificate["dnsNames"])
    assert stored.keys() - mounted.keys() == {"chatlane-nats-accounts"}
    assert {name for name in mounted if not mounted[name] <= stored[name]} == set()
    (router,) = [its["spec"] for its in found if its["metadata"]["name"] == "chatlane-nats-router"]
    assert router["data"] == [
        {"secretKey": "seed", "remoteRef": {"key": "chat/chatlane-nats-router", "property": "seed"}}
    ]
    # An upgrade replaces the hook; the Secret has to stay.
    assert router["target"]["creationPolicy"] == "Orphan"


@each_variant
def test_custom_resources_and_their_queries_are_what_operators_read(variant: str) -> None:
    for its in chart_objects(variant):
        if is_custom(its):
            validate(its)
        for trigger in its.get("spec", {}).get("triggers", ()):
            if trigger["type"] == "prometheus":
                check_asks_for_what_is_shown(trigger["metadata"]["query"])


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"autoscaling": "both"}, "autoscaling"),
        ({"configuration": ""}, "configuration"),
        ({"image": {"repository": "x", "digest": "sha256:1"}}, "digest"),
        ({"routers": 3}, "routers"),
        ({"adapters": [{**ADAPTER, "replicas": 2}]}, "replicas"),
        ({"adapters": [{**ADAPTER, "from": MATRIX["from"]}]}, "port"),
        ({"frontEnds": [{**CONSOLE, "program": "acp"}]}, "program"),
        ({"erasures": {"schedule": "5m"}}, "schedule"),
    ],
)
def test_other_values_are_refused(values: Mapping[str, Any], complaint: str) -> None:
    done = helm({**VALUES, **values})
    assert done.returncode == 1
    assert complaint in done.stderr


def test_the_version_of_the_chart_is_that_of_chatlane() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert 'version = "' + chart["version"] + '"' in (ROOT / "service/pyproject.toml").read_text()
    assert chart["appVersion"] == chart["version"]


def test_the_chart_reads_the_manifests_of_the_overlays() -> None:
    """A copy could differ; `helm package` puts the files themselves into the archive."""
    links = {path.name: path.resolve() for path in (CHART / "files").iterdir()}
    assert links == {
        **{
            name: ROOT / "deploy/kubernetes" / name for name in ("agent-team", "base", "components")
        },
        "observability": ROOT / "deploy/observability",
    }
