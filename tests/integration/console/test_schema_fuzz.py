"""Requests that the OpenAPI document allows, made at random: each answer is as the document says."""

import asyncio
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from chatlane_console.application import api_document
from tests.integration.console.console_world import API, SAFE, ConsoleWorld

pytestmark = pytest.mark.integration

CHECKS: Final = [not_a_server_error, content_type_conformance, response_schema_conformance]


def fuzz(url: str, person: str, examples: int) -> int:
    """Make requests of every route as an operator; return how many there were."""
    headers = {**SAFE, "x-forwarded-user": person, "x-forwarded-groups": "operators"}
    # A stream has no end, and signing out has nothing to say.
    document = api_document()
    document["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if not path.endswith("/events")
    }
    asked = 0
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = result.ok()  # type: ignore[union-attr]
            # An export reads each session that other requests have created.
            most = 3 if operation.path.endswith("/export") else examples

            @settings(
                max_examples=min(most, examples),
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def ask(case: schemathesis.Case[Any]) -> None:
                nonlocal asked
                asked += 1
                if "session_id" in (case.path_parameters or {}) and asked % 3:
                    created = client.post(f"{API}/sessions", json={})
                    case.path_parameters["session_id"] = created.json()["id"]
                response = case.call(base_url=url, headers=headers)
                case.validate_response(response, checks=CHECKS)

            ask()
    return asked


@pytest.mark.parametrize(
    "examples", [1, pytest.param(25, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
async def test_each_answer_is_as_the_document_says(console: ConsoleWorld, examples: int) -> None:
    assert await asyncio.to_thread(fuzz, console.url, uuid4().hex, examples) > 40
