"""Questions of turns as queries to a caller, who answers with text."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from synadia_ai.agent_service import PromptStream

from chatlane_schemas.content.buttons import Button
from chatlane_schemas.content.questions import FieldKind, FieldValue
from chatlane_schemas.questions import OpenQuestionView

Values: TypeAlias = Mapping[str, FieldValue]

_YES: Final = frozenset({"yes", "y", "true", "1"})
_NO: Final = frozenset({"no", "n", "false", "0"})


async def replies_to(
    question: OpenQuestionView, stream: PromptStream, problem: str, within: float
) -> tuple[str | None, Values | None]:
    """Ask a caller, and return the value of an answer, or the values of a form.

    A word that is no option is returned as it is: the service refuses it and says why.

    Args:
        question: The question.
        stream: The stream of the prompt.
        problem: Why the answer before was refused; empty at first.
        within: Seconds for each answer.

    Raises:
        QueryTimeout: The caller did not answer in time.
    """
    if not question.fields:
        text = _text((problem, question.text), question.options)
        answer = await stream.ask(text, timeout=within)
        return chosen(answer.prompt, question.options), None
    values: dict[str, FieldValue] = {}
    for field in question.fields:
        text = _text((problem, question.text if not values else None, field.label), field.options)
        reply = (await stream.ask(text, timeout=within)).prompt.strip()
        problem = ""
        if reply or field.required:
            values[field.name] = _value(field.kind, chosen(reply, field.options))
    return None, values


def chosen(reply: str, options: Iterable[Button]) -> str:
    """Return the value of the option that a caller names, by its number, label or value."""
    given = reply.strip()
    for number, option in enumerate(options, 1):
        value = option.value or option.label
        names = {str(number), option.label.casefold(), value.casefold()}
        if given.casefold() in names:
            return value
    return given


def _value(kind: FieldKind, given: str) -> FieldValue:
    if kind is FieldKind.BOOLEAN and given.casefold() in _YES | _NO:
        return given.casefold() in _YES
    if kind is FieldKind.NUMBER:
        try:
            return float(given)
        except ValueError:
            return given
    return given


def _text(parts: Iterable[str | None], options: Iterable[Button]) -> str:
    numbered = (f"{number}. {option.label}" for number, option in enumerate(options, 1))
    return "\n".join([*(part for part in parts if part), *numbered])
