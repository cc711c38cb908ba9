"""Questions of running turns, asked in the editor."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from chatlane_bridges.acp import updates
from chatlane_bridges.acp.editor import Editor
from chatlane_bridges.acp.service_link import Service
from chatlane_bridges.answers.form_schemas import form_schema, value_of
from chatlane_client import (
    ConflictingRequestError,
    RefusedRequestError,
    SessionNotFoundError,
    UnansweredRequestError,
)
from chatlane_schemas import new_envelope_id
from chatlane_schemas.content.buttons import Button
from chatlane_schemas.content.questions import FieldKind, FieldValue, FormField, QuestionKind
from chatlane_schemas.live_turns import StepState
from chatlane_schemas.questions import OpenQuestionView

_ONE_VALUE: Final = "answer"
_ACP_KINDS: Final = frozenset({"allow_once", "allow_always", "reject_once", "reject_always"})
_REJECTING: Final = frozenset(
    {"deny", "reject", "no", "not", "don't", "never", "cancel", "refuse", "block"}
)


def takes(question: OpenQuestionView, editor: Editor) -> bool:
    """Return whether the editor can ask a question: as a permission, or as a form if it has them."""
    return question.call is not None or bool(question.options) or editor.has_forms


class QuestionDialog:
    """One question, from the editor's dialog back to the attempt that asks."""

    def __init__(
        self,
        service: Service,
        editor: Editor,
        session_id: str,
        question: OpenQuestionView,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Create it.

        Args:
            service: Where the answer goes.
            editor: The editor.
            session_id: Id of the session for the editor.
            question: The question.
            give_up: Called if the person answers nothing: it stops the turn.

        `has_answer` says whether the person has answered.
        """
        self._service = service
        self._editor = editor
        self._session_id = session_id
        self._question = question
        self._give_up = give_up
        self._tool_id = f"question-{question.question_id}"
        self.has_answer = False

    async def run(self, target: UUID) -> None:
        """Ask until an answer is taken, or the question is not open any more."""
        title = self._question.text or "A question"
        while True:
            answer = await self._answer(title)
            if answer is None:
                await self._give_up()
                return
            self.has_answer = True
            try:
                await reply(self._service, target, self._question.question_id, answer)
            except (ConflictingRequestError, SessionNotFoundError):
                # Another front end was faster, its time is over, or its attempt has ended.
                await self.close(StepState.FAILED)
                return
            except RefusedRequestError as exc:
                self.has_answer = False
                title = f"{exc.message}\n{self._question.text or ''}"
                continue
            await self.close(StepState.DONE)
            return

    async def close(self, state: StepState) -> None:
        """Show that the question is not open any more."""
        if not self._is_form:
            await self._editor.show(
                self._session_id, [updates.tool_change(self._tool_id, state=state)]
            )

    @property
    def _is_form(self) -> bool:
        question = self._question
        is_plain_choice = question.kind is QuestionKind.CHOICE and self._editor.has_forms
        return is_plain_choice or not question.options

    async def _answer(self, title: str) -> dict[str, FieldValue] | str | None:
        if not self._is_form:
            return await self._permission(title)
        fields = self._question.fields or (
            FormField(
                name=_ONE_VALUE,
                label=self._question.text or _ONE_VALUE,
                kind=FieldKind.CHOICE if self._question.options else FieldKind.TEXT,
                options=self._question.options,
            ),
        )
        values = await self._form(title, fields)
        if values is None or self._question.fields:
            return values
        return str(values.get(_ONE_VALUE, ""))

    async def _permission(self, title: str) -> str | None:
        options = [
            {
                "optionId": value_of(option),
                "name": option.label,
                "kind": permission_kind(option, self._question.default),
            }
            for option in self._question.options
        ]
        call = {"toolCallId": self._tool_id, "title": title, "kind": "other", "status": "pending"}
        result = await self._editor.ask(
            "session_request_permission",
            {"sessionId": self._session_id, "toolCall": call, "options": options},
        )
        outcome = (result or {}).get("outcome") or {}
        chosen = outcome.get("optionId")
        values = {value_of(option) for option in self._question.options}
        return chosen if outcome.get("outcome") == "selected" and chosen in values else None

    async def _form(
        self, title: str, fields: tuple[FormField, ...]
    ) -> dict[str, FieldValue] | None:
        result = await self._editor.ask(
            "elicitation_create",
            {
                "sessionId": self._session_id,
                "mode": "form",
                "message": title,
                "requestedSchema": form_schema(fields),
            },
        )
        if result is None or result.get("action") != "accept":
            return None
        content = result.get("content")
        return content if isinstance(content, dict) else {}


async def reply(
    service: Service, target: UUID, question_id: UUID, answer: dict[str, FieldValue] | str
) -> None:
    """Answer a question, also if routers are away for a time.

    Raises:
        ConflictingRequestError: The question is not open any more.
        RefusedRequestError: The question does not take this answer.
    """
    request_id = new_envelope_id()
    value = answer if isinstance(answer, str) else None
    values = answer if isinstance(answer, dict) else None
    while True:
        try:
            await service.sessions.reply(
                target, question_id, value, values=values, request_id=request_id
            )
        except UnansweredRequestError:
            # The answer is not lost as long as this process runs.
            await asyncio.sleep(1)
        else:
            return


def permission_kind(option: Button, default: str | None) -> str:
    """Return the kind of a permission's option, as far as its value or its label shows it."""
    value = value_of(option)
    if value in _ACP_KINDS:
        return value
    words = {word.strip(".,!").casefold() for word in (*option.label.split(), *value.split("_"))}
    is_rejecting = value == default or not words.isdisjoint(_REJECTING)
    is_lasting = "always" in words or "never" in words
    return f"{'reject' if is_rejecting else 'allow'}_{'always' if is_lasting else 'once'}"
