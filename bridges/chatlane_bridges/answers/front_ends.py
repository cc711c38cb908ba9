"""Hold what a front end gives to a run: tools, context, state, results of calls, its text."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chatlane_schemas.content.front_end import FrontEnd
from chatlane_schemas.questions import OpenQuestionView


@dataclass(frozen=True, slots=True)
class FrontEndInput:
    """The input of a run besides the words.

    Attributes:
        given: Tools, context and state.
        results: Results of calls of its tools, by turn and id of the call as `call_key` names them.
        text: The text of the answer that it has already.
        thoughts: The thoughts that it has.
        calls: Ids of the calls of the agent's own tools that it has.
    """

    given: FrontEnd | None = None
    results: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    thoughts: str = ""
    calls: frozenset[str] = frozenset()

    @property
    def is_going_on(self) -> bool:
        """Return whether it goes on with a turn after a call."""
        return bool(self.results)

    def result_of(self, question: OpenQuestionView) -> str | None:
        """Return the result of the call that a question asks for, if it is there."""
        return self.results.get(call_key(question))


def call_key(question: OpenQuestionView) -> str:
    """Return turn and id of the call that a question asks for; the same for each attempt."""
    call = question.front_end_call
    return "" if call is None else f"{question.turn_id.hex}{call.id}"
