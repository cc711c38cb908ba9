"""Tools, context and results of the front end: what a run may bring, and what the client has."""

import json
from typing import Any
from uuid import UUID

import pytest
from ag_ui.core import RunAgentInput
from pydantic import ValidationError

from chatlane_bridges.ag_ui.front_end_input import given_by, going_on, turn_of_results
from chatlane_bridges.http.problems import ApiProblem, problem_of

CALL = "0" * 31 + "1" + "2" * 32
TOOL: dict[str, Any] = {"name": "set_colour", "description": "Set it.", "parameters": {}}
ENTRY = {"description": "Page", "value": "Cart"}
WORDS = {"id": "1", "role": "user", "content": "paint"}


def run_with(*messages: dict[str, Any], **fields: Any) -> RunAgentInput:  # noqa: ANN401 - of the protocol
    body = {"threadId": "thread", "runId": "run", "messages": messages, **fields}
    return RunAgentInput.model_validate_json(json.dumps(body))


def result(call_id: str = CALL, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - of the protocol
    return {
        "id": f"of {call_id}",
        "role": "tool",
        "toolCallId": call_id,
        "content": "Done.",
    } | fields


def answer(text: str, *call_ids: str) -> dict[str, Any]:
    calls = [
        {"id": it, "type": "function", "function": {"name": "set_colour", "arguments": "{}"}}
        for it in call_ids
    ]
    return {"id": f"answer {text}", "role": "assistant", "content": text, "toolCalls": calls}


def test_a_run_gives_tools_and_context() -> None:
    assert given_by(run_with(WORDS)) is None
    schema = {"type": "object", "required": ["colour"]}
    given = given_by(run_with(WORDS, tools=[TOOL | {"parameters": schema}], context=[ENTRY]))
    assert given is not None
    [tool] = given.tools
    assert (tool.name, tool.schema_of_arguments()) == ("set_colour", schema | {"properties": {}})
    assert [(it.description, it.value) for it in given.context] == [("Page", "Cart")]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL | {"name": f"tool_{it}"} for it in range(65)]}, "tools"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL | {"description": "ü" * 33_000}]}, "tools"),
        ({"tools": [TOOL | {"name": "of colour"}]}, "tools.0.name"),
        ({"tools": [TOOL | {"parameters": ["colour"]}]}, "tools.0.parameters"),
        ({"context": [ENTRY] * 65}, "context"),
        ({"state": "colour"}, "state"),
        ({"state": {"colour": "ü" * 17_000}}, "state"),
        ({"context": [ENTRY | {"value": "x" * 33_000}]}, "context"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_words(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        given_by(run_with(WORDS, **fields))
    problem = problem_of(caught.value)
    assert (problem.status, problem.param) == (400, param)
    assert "colour" not in problem.message


def test_a_run_shares_its_state() -> None:
    given = given_by(run_with(WORDS, state={"name": "Zoë"}))
    assert given is not None
    assert given.shared_state() == {"name": "Zoë"}
    empty = given_by(run_with(WORDS, state={}))
    assert empty is not None
    assert (empty.state, empty.shared_state()) == ("{}", {})
    without = given_by(run_with(WORDS, context=[ENTRY], state=None))
    assert without is not None
    assert (without.state, without.shared_state()) == (None, {})


def test_a_result_at_the_end_names_its_turn() -> None:
    assert turn_of_results(run_with(WORDS).messages) is None
    assert turn_of_results(run_with(WORDS, result(), WORDS).messages) is None
    of_agent = result("a" * 32 + "-1")
    messages = run_with(WORDS, result(), of_agent).messages
    assert turn_of_results(messages) == UUID(int=1)


@pytest.mark.parametrize("call_id", ["call_1", "a" * 32 + "-1", CALL.upper().replace("2", "Z")])
def test_a_result_of_another_call_is_refused(call_id: str) -> None:
    with pytest.raises(ApiProblem):
        turn_of_results(run_with(WORDS, result(call_id)).messages)


def test_a_client_that_goes_on_has_what_it_got_since_the_last_words() -> None:
    agent_call = "a" * 32 + "-search-1"
    thought = {"id": "t", "role": "reasoning", "content": "Hm."}
    messages = run_with(
        answer("Hello."), WORDS, thought, answer("I look, "), answer("", agent_call),
        result(agent_call), answer("and paint.", CALL), result(content="", error="no paint"),
    ).messages  # fmt: skip
    had = going_on(messages)
    assert had.results == {CALL: "no paint"}
    assert (had.text, had.thoughts, had.calls) == (
        "I look, and paint.",
        "Hm.",
        frozenset({"search-1"}),
    )


@pytest.mark.parametrize(
    "content",
    [
        "x" * 130_000,
        [{"type": "image", "source": {"type": "url", "value": "https://files.example/1.png"}}],
    ],
)
def test_a_result_is_a_text_of_a_bounded_size(content: object) -> None:
    with pytest.raises(ApiProblem) as caught:
        going_on(run_with(WORDS, result(content=content)).messages)
    assert caught.value.status == 400
