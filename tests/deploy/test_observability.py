"""The alert rules and the dashboard ask for what a router really shows."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.deploy.metric_queries import SERIES, check_asks_for_what_is_shown, series_asked
from tests.integration.client.real_router import real_router
from tests.support.declared_metrics import METRICS
from tests.support.eventually import eventually

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy/observability"
RULES: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
RULE_TESTS: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())
CLUSTER_RULES: Final[dict[str, Any]] = yaml.safe_load(
    (FOLDER / "kubernetes_alerts.yaml").read_text()
)
CLUSTER_TESTS: Final[dict[str, Any]] = yaml.safe_load(
    (FOLDER / "kubernetes_alerts_test.yaml").read_text()
)
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS: Final = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SHOWN: Final = {
    f"{panel['title']} {target['refId']}": str(target["expr"])
    for panel in PANELS
    for target in panel["targets"]
}
ASKED: Final = {**{name: str(rule["expr"]) for name, rule in ALERTS.items()}, **SHOWN}


def promtool() -> str:
    """Return the tool; only CI, which fetches it, has to have it."""
    found = os.environ.get("CHATLANE_TEST_PROMTOOL") or shutil.which("promtool")
    fetched = ROOT / ".cache/promtool"
    if found is None and fetched.exists():
        found = str(fetched)
    if found is None and os.environ.get("CI"):
        pytest.fail("promtool is missing: .ci/promtool fetches it")
    if found is None:
        pytest.skip("promtool is missing: .ci/promtool fetches it")
    return found


def check(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(  # noqa: S603 # the tool we were given
        [promtool(), *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=text,
        cwd=FOLDER,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("expression", ASKED.values(), ids=ASKED)
def test_what_is_asked_for_is_shown_by_a_router(expression: str) -> None:
    check_asks_for_what_is_shown(expression)


def test_every_metric_of_the_service_is_on_the_dashboard_or_in_an_alarm() -> None:
    asked = {
        SERIES[name].name
        for text in ASKED.values()
        for name in series_asked(text)
        if name in SERIES
    }
    # Counts that explain another one, for who looks closer.
    closer = {
        "chatlane_api_requests_total",
        "chatlane_commands_total",
        "chatlane_erased_messages_total",
        "chatlane_kept_events_total",
        "chatlane_log_lag_seconds",
        "chatlane_message_changes_total",
        "chatlane_nats_reconnects_total",
        "chatlane_partitions",
        "chatlane_published_total",
        "chatlane_searchable_rows_total",
        "chatlane_sessions_started_total",
        "chatlane_stream_answers_total",
        "chatlane_turn_renewals_total",
        "chatlane_turns_cancelled_total",
        "chatlane_unsearchable_sessions",
    }
    assert {metric.name for metric in METRICS} - asked == closer


@pytest.mark.parametrize(("rules", "tests"), [(RULES, RULE_TESTS), (CLUSTER_RULES, CLUSTER_TESTS)])
def test_every_alert_has_a_test_that_it_fires_and_one_that_it_does_not(
    rules: dict[str, Any], tests: dict[str, Any]
) -> None:
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    asked = [one for test in tests["tests"] for one in test["alert_rule_test"]]
    assert {one["alertname"] for one in asked if one.get("exp_alerts")} == alerts
    assert {one["alertname"] for one in asked if not one.get("exp_alerts")} == alerts


def test_every_alert_is_in_the_manual() -> None:
    manual = (ROOT / "docs/operations.md").read_text("utf-8")
    assert [name for name in ALERTS if f"`{name}`" not in manual] == []
    assert set(re.findall(r"`(Chatlane[A-Za-z]+)`", manual)) == ALERTS.keys()


def test_panels_do_not_cover_each_other() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (place["x"] + column, place["y"] + row)
        for place in places
        for column in range(place["w"])
        for row in range(place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_rules_are_valid() -> None:
    assert f"{len(ALERTS)} rules found" in check("check", "rules", "alerts.yaml")


def test_rules_of_a_cluster_are_valid() -> None:
    assert "2 rules found" in check("check", "rules", "kubernetes_alerts.yaml")


@pytest.mark.parametrize("tests", ["alerts_test.yaml", "kubernetes_alerts_test.yaml"])
def test_rules_fire_when_they_should(tests: str) -> None:
    assert "SUCCESS" in check("test", "rules", tests)


def test_what_the_dashboard_asks_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(SHOWN.values())
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in check("check", "rules", str(path))


def families(page: str) -> Iterator[str]:
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            yield line.split(" ")[2]


@pytest.mark.integration
async def test_a_running_router_shows_all_of_it(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with (
        real_router(tmp_path, nats_url, database_url) as app,
        httpx.AsyncClient(trust_env=False) as client,
    ):

        async def page() -> str:
            response = await client.get(f"http://127.0.0.1:{app.http_port}/metrics")
            return response.text

        async def has_looked_around() -> str:
            text = await page()
            assert "\nchatlane_partition_lag_seconds{" in text
            return text

        text = await eventually(has_looked_around)

    assert set(families(text)) == {metric.name for metric in METRICS}
    check("check", "metrics", text=text)
