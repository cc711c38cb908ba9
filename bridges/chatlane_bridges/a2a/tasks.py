"""Tasks of the protocol: one for each message, with the state that its turn has."""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from a2a.utils.errors import TaskNotFoundError

from chatlane_bridges.answers.answer_follower import Answer
from chatlane_client import Submission
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.questions import OpenQuestionView

ARTIFACT: Final = "answer"

_ID: Final = re.compile("[0-9a-f]{64}")
_STATES: Final = {
    TurnOutcome.OK: TaskState.TASK_STATE_COMPLETED,
    TurnOutcome.NO_REPLY: TaskState.TASK_STATE_COMPLETED,
    TurnOutcome.CANCELLED: TaskState.TASK_STATE_CANCELED,
    TurnOutcome.FAILED: TaskState.TASK_STATE_FAILED,
}
OVER: Final = frozenset(_STATES.values())


class TaskName:
    """The ids of a task and of its context.

    Attributes:
        id: Names the session and the message that began the task.
        context_id: The session.
    """

    def __init__(self, session_id: UUID, message_id: UUID) -> None:
        self.session_id = session_id
        self.message_id = message_id
        self.id = f"{session_id.hex}{message_id.hex}"
        self.context_id = str(session_id)

    @classmethod
    def of(cls, submission: Submission) -> "TaskName":
        """Return the name of the task that a submission begins."""
        return cls(submission.session.id, submission.message_id)

    @classmethod
    def parsed(cls, task_id: str) -> "TaskName":
        """Return the name that an id has.

        Raises:
            TaskNotFoundError: No task has such an id.
        """
        if _ID.fullmatch(task_id) is None:
            raise TaskNotFoundError
        return cls(UUID(task_id[:32]), UUID(task_id[32:]))

    def task(self, status: TaskStatus, text: str = "") -> Task:
        """Return the task."""
        artifacts = [text_artifact(text)] if text else []
        return Task(id=self.id, context_id=self.context_id, status=status, artifacts=artifacts)

    def ended(self, answer: Answer) -> TaskStatus:
        """Return the status after an answer: over, or waiting for a person."""
        if answer.question is not None:
            return self.asked(answer.question)
        return self.over(answer.outcome, answer.notice)

    def over(self, outcome: TurnOutcome, notice: str | None) -> TaskStatus:
        """Return the status of a task that is over."""
        if outcome is not TurnOutcome.FAILED:
            return TaskStatus(state=_STATES[outcome])
        content = self._message("notice", notice or "The agent could not answer.")
        return TaskStatus(state=_STATES[outcome], message=content)

    def asked(self, question: OpenQuestionView) -> TaskStatus:
        """Return the status of a task that waits for the answer to a question."""
        text = "\n\n".join(_question_texts(question))
        content = self._message(question.question_id.hex, text)
        return TaskStatus(state=TaskState.TASK_STATE_INPUT_REQUIRED, message=content)

    def _message(self, message_id: str, text: str) -> Message:
        return Message(
            message_id=f"{self.id}{message_id}",
            context_id=self.context_id,
            task_id=self.id,
            role=Role.ROLE_AGENT,
            parts=[Part(text=text)],
        )


def text_artifact(text: str) -> Artifact:
    """Return the answer, or a part of it."""
    return Artifact(artifact_id=ARTIFACT, parts=[Part(text=text)])


def words_of(parts: Sequence[Part]) -> str:
    """Return the text of a message; empty if another kind of part is in it."""
    if not all(part.HasField("text") for part in parts):
        return ""
    return "\n\n".join(part.text for part in parts).strip()


def _question_texts(question: OpenQuestionView) -> Iterable[str]:
    yield question.text or "The agent asks for an answer."
    if question.options:
        labels = (option.label for option in question.options)
        yield "\n".join(f"{number}. {label}" for number, label in enumerate(labels, 1))
