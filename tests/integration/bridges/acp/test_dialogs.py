"""Questions of running turns, asked in the editor."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_client import ConflictingRequestError, QuestionAnswer, SessionApi, Turn
from chatlane_schemas import Button, FieldKind, FormField, QuestionKind
from chatlane_schemas.session_api.people import Person
from tests.integration.client.routing import working
from tests.support.bridges.plain_editor import Editors
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ANN = Person(platform="acp", account="editor", id="ann")
LONG = timedelta(seconds=60)
OPTIONS = (
    Button(label="Allow", value="allow"),
    Button(label="Always allow", value="allow_always"),
    Button(label="Deny", value="deny"),
)
FORMS: Mapping[str, Any] = {"elicitation": {"form": {}}}


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def may_delete(turn: Turn) -> str:
    answer = await turn.ask(
        "Delete it?", OPTIONS, within=LONG, default="deny", kind=QuestionKind.PERMISSION
    )
    return f"chose {answer.value}"


@pytest.mark.parametrize("option", ["allow", "deny"])
async def test_a_permission_is_asked_and_its_answer_reaches_the_turn(
    client: Client, editors: Editors, option: str
) -> None:
    async with working(client, may_delete), editors.open() as editor:
        editor.answer = lambda _: selected(option)
        session = await editor.open()
        assert (await editor.prompt(session, "clean up"))["stopReason"] == "end_turn"
    [request] = editor.requests
    assert request["method"] == "session/request_permission"
    assert request["params"]["sessionId"] == session
    assert request["params"]["toolCall"]["title"] == "Delete it?"
    assert [(it["optionId"], it["kind"]) for it in request["params"]["options"]] == [
        ("allow", "allow_once"),
        ("allow_always", "allow_always"),
        ("deny", "reject_once"),
    ]
    assert editor.said() == [f"chose {option}"]
    assert [it["status"] for it in editor.of("tool_call_update")] == ["completed"]


async def test_a_permission_can_be_given_elsewhere(client: Client, editors: Editors) -> None:
    phone = SessionApi(client, principal="editor", acting_for=ANN)
    async with working(client, may_delete), editors.open() as editor:
        session = await editor.open()
        prompt = editor.prompt(session, "clean up")
        request = await editor.until_asked("session/request_permission")
        question = await phone.question(UUID(session))
        assert question is not None
        await phone.reply(UUID(session), question.question_id, "allow")
        assert (await prompt)["stopReason"] == "end_turn"
        editor.reply(request, selected("deny"))
        editor.answer = lambda _: selected("deny")
        await editor.prompt(session, "clean up again")
    assert editor.said() == ["chose allow", "chose deny"]


async def test_a_dismissed_permission_ends_the_turn(client: Client, editors: Editors) -> None:
    async with working(client, may_delete), editors.open() as editor:
        editor.answer = lambda _: {"outcome": {"outcome": "cancelled"}}
        session = await editor.open()
        assert await editor.prompt(session, "clean up") == {"stopReason": "cancelled"}
    assert editor.said() == []


async def test_cancelling_closes_a_permission(client: Client, editors: Editors) -> None:
    async with working(client, may_delete), editors.open() as editor:
        session = await editor.open()
        prompt = editor.prompt(session, "clean up")
        request = await editor.until_asked("session/request_permission")
        editor.tell("session/cancel", sessionId=session)
        editor.reply(request, {"outcome": {"outcome": "cancelled"}})
        assert await prompt == {"stopReason": "cancelled"}
        phone = SessionApi(client, principal="editor", acting_for=ANN)
        assert await phone.question(UUID(session)) is None


async def test_an_open_permission_is_asked_again_by_another_bridge(
    client: Client, editors: Editors
) -> None:
    async with working(client, may_delete):
        async with editors.open() as editor:
            session = await editor.open()
            prompt = editor.prompt(session, "clean up")
            await editor.until_asked("session/request_permission")
        assert prompt.cancelled()
        async with editors.open() as editor:
            editor.answer = lambda _: selected("allow")
            await editor.ask("session/load", sessionId=session, cwd="/srv/project", mcpServers=[])
            await eventually(lambda: "chose allow" in editor.said())
    assert editor.said("user_message_chunk") == ["clean up"]


async def test_an_editor_without_forms_answers_with_its_next_prompt(
    client: Client, editors: Editors
) -> None:
    async def answer(turn: Turn) -> str:
        await turn.delta("Let me ask. ")
        city = await turn.ask("Which city?", within=LONG)
        await turn.delta(f"In {city.value}.")
        return f"Let me ask. In {city.value}."

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        assert (await editor.prompt(session, "weather?"))["stopReason"] == "end_turn"
        assert editor.said() == ["Let me ask. ", "Which city?"]
        assert (await editor.prompt(session, "Oslo"))["stopReason"] == "end_turn"
    assert "".join(editor.said()) == "Let me ask. In Oslo.Which city?"


async def test_an_editor_with_forms_shows_the_whole_form(client: Client, editors: Editors) -> None:
    answers: list[QuestionAnswer] = []
    fields = (
        FormField(name="city", label="City", minimum=2),
        FormField(
            name="unit",
            label="Unit",
            kind=FieldKind.CHOICE,
            options=(Button(label="Celsius", value="c"), Button(label="Fahrenheit", value="f")),
        ),
        FormField(name="days", label="Days", kind=FieldKind.NUMBER, maximum=9, required=False),
    )

    async def answer(turn: Turn) -> str:
        answers.append(await turn.ask_form("The weather", fields, within=LONG))
        answers.append(await turn.ask("Which name?", within=LONG))
        return "thanks"

    def filled(request: dict[str, Any]) -> dict[str, Any]:
        properties = request["params"]["requestedSchema"]["properties"]
        if "city" not in properties:
            return {"action": "accept", "content": dict.fromkeys(properties, "Ann")}
        # The first try is refused by the service.
        city = "Oslo" if len(editor.requests) > 1 else "O"
        return {"action": "accept", "content": {"city": city, "unit": "c", "days": 3}}

    async with working(client, answer), editors.open(**FORMS) as editor:
        editor.answer = filled
        session = await editor.open()
        assert (await editor.prompt(session, "weather?"))["stopReason"] == "end_turn"
    assert [it.values for it in answers] == [{"city": "Oslo", "unit": "c", "days": 3}, None]
    assert answers[1].value == "Ann"
    schema = editor.requests[0]["params"]["requestedSchema"]
    assert schema["required"] == ["city", "unit"]
    assert schema["properties"]["unit"]["oneOf"] == [
        {"const": "c", "title": "Celsius"},
        {"const": "f", "title": "Fahrenheit"},
    ]
    assert editor.said() == ["thanks"]


async def test_a_late_answer_is_no_answer(client: Client, editors: Editors) -> None:
    async def answer(turn: Turn) -> str:
        chosen = await turn.ask(
            "Delete it?", OPTIONS, within=timedelta(milliseconds=500), default="deny"
        )
        return f"chose {chosen.value} {chosen.is_default}"

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        assert (await editor.prompt(session, "clean up"))["stopReason"] == "end_turn"
        [request] = editor.requests
        editor.reply(request, selected("allow"))
        phone = SessionApi(client, principal="editor", acting_for=ANN)
        with pytest.raises(ConflictingRequestError):
            await phone.reply(UUID(session), UUID(int=1), "allow")
    assert editor.said() == ["chose deny True"]
