"""Texts that people read in a chat, by id and language.

The English texts are `english.toml`, which is part of the package and read on import. Settings add
the texts of other languages. So a decision takes a language from the declarations, without IO.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from importlib.resources import files
from string import Formatter
from typing import TYPE_CHECKING, Final

from chatlane_schemas.content.visible_text import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_CHARACTERS: Final = 1000
_PARTS: Final = ("part_", "help_")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
# Signs that bots put before a notice; an emoji form may follow each of them.
_SIGNS: Final = re.compile("[⚠❌❎⛔🚫🛑\N{INFORMATION SOURCE}⏳⌛✋🔇]")


class NoticeId(StrEnum):
    """The ids of all texts, in the order of `english.toml`."""

    SESSION_SUSPENDED = "session_suspended"
    SESSION_INTERRUPTED = "session_interrupted"
    SESSION_IDLE = "session_idle"
    SESSION_DAILY = "session_daily"
    TURN_FAILED = "turn_failed"
    TURN_STUCK = "turn_stuck"
    AGENT_UNAVAILABLE = "agent_unavailable"
    FORM_OPTIONAL = "form_optional"
    FORM_TEXT = "form_text"
    FORM_SHORT = "form_short"
    FORM_LONG = "form_long"
    FORM_NUMBER = "form_number"
    FORM_LEAST = "form_least"
    FORM_MOST = "form_most"
    FORM_CHOICE = "form_choice"
    RATE_LIMITED = "rate_limited"
    COMMAND_FORBIDDEN = "command_forbidden"
    TEXT_MISSING = "text_missing"
    ATTACHMENTS_IGNORED = "attachments_ignored"
    NO_CONVERSATION = "no_conversation"
    NOT_FOUND = "not_found"
    NOTHING_TO_UNDO = "nothing_to_undo"
    NOTHING_TO_RETRY = "nothing_to_retry"
    ANSWER_RUNNING = "answer_running"
    NO_ANSWER_RUNNING = "no_answer_running"
    WAIT_OR_STOP = "wait_or_stop"
    ANSWER_STILL_ARRIVES = "answer_still_arrives"
    STARTED = "started"
    STARTED_HERE = "started_here"
    UNANSWERED_ONE = "unanswered_one"
    UNANSWERED = "unanswered"
    LEFT_ONE = "left_one"
    LEFT = "left"
    STOPPED = "stopped"
    NOTHING_TO_STOP = "nothing_to_stop"
    NOTHING_TO_STOP_STREAM = "nothing_to_stop_stream"
    DROPPED_ONE = "dropped_one"
    DROPPED = "dropped"
    QUEUED = "queued"
    STEERED = "steered"
    ANSWERED_NOW = "answered_now"
    ANSWERED_SEPARATELY = "answered_separately"
    WRONG_NUMBER = "wrong_number"
    UNDONE = "undone"
    UNDONE_FROM = "undone_from"
    RETRYING = "retrying"
    TITLE = "title"
    TITLE_TAKEN = "title_taken"
    TITLE_TOO_LONG = "title_too_long"
    NO_TITLE = "no_title"
    TITLE_CLEARED = "title_cleared"
    NO_CONVERSATIONS = "no_conversations"
    LIST_OUTDATED = "list_outdated"
    CHOOSE = "choose"
    RESUMED = "resumed"
    ALREADY_HERE = "already_here"
    BRANCHED = "branched"
    MODEL = "model"
    MODEL_CHOSEN = "model_chosen"
    NO_MODEL = "no_model"
    MODEL_CLEARED = "model_cleared"
    WRONG_MODEL = "wrong_model"
    STATUS_TITLED = "status_titled"
    STATUS_UNTITLED = "status_untitled"
    STATUS_ENDED = "status_ended"
    WAITING_ONE = "waiting_one"
    WAITING = "waiting"
    WAITING_MANY = "waiting_many"
    STATUS_AGENT = "status_agent"
    STATUS_AGENT_MODEL = "status_agent_model"
    STATUS_ID = "status_id"
    PART_MESSAGES_ONE = "part_messages_one"
    PART_MESSAGES = "part_messages"
    PART_UNTITLED = "part_untitled"
    PART_SESSION = "part_session"
    PART_SESSION_CURRENT = "part_session_current"
    PART_HELP = "part_help"
    PART_YES = "part_yes"
    PART_NO = "part_no"
    PART_SKIP = "part_skip"
    HELP_NEW = "help_new"
    HELP_NEW_ARGUMENTS = "help_new_arguments"
    HELP_STOP = "help_stop"
    HELP_QUEUE = "help_queue"
    HELP_QUEUE_ARGUMENTS = "help_queue_arguments"
    HELP_STEER = "help_steer"
    HELP_STEER_ARGUMENTS = "help_steer_arguments"
    HELP_UNDO = "help_undo"
    HELP_UNDO_ARGUMENTS = "help_undo_arguments"
    HELP_RETRY = "help_retry"
    HELP_TITLE = "help_title"
    HELP_TITLE_ARGUMENTS = "help_title_arguments"
    HELP_SESSIONS = "help_sessions"
    HELP_RESUME = "help_resume"
    HELP_RESUME_ARGUMENTS = "help_resume_arguments"
    HELP_BRANCH = "help_branch"
    HELP_BRANCH_ARGUMENTS = "help_branch_arguments"
    HELP_MODEL = "help_model"
    HELP_MODEL_ARGUMENTS = "help_model_arguments"
    HELP_STATUS = "help_status"
    HELP_HELP = "help_help"


def fields_of(template: str) -> frozenset[str]:
    """Return the names of the fields of a text.

    Raises:
        ValueError: Braces are unbalanced, or a field is more than a name.
    """
    names = set()
    for _, name, specification, conversion in Formatter().parse(template):
        if name is None:
            continue
        if not name.isidentifier() or specification or conversion:
            raise ValueError("a field is a name in braces, such as {title}")
        names.add(name)
    return frozenset(names)


class Notices:
    """The texts of one language; an id without a text is English.

    Args:
        texts: Texts by id, without problems (`problems_of`).
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {**_ENGLISH_TEXTS, **texts}
        whole = (
            template
            for notice_id, template in self._texts.items()
            if not notice_id.startswith(_PARTS) and not fields_of(template)
        )
        self._fixed = frozenset(map(_first_line, whole))
        # With fields, but frequent between bots that answer each other.
        self._rate_limited = self._texts[NoticeId.RATE_LIMITED].partition("{")[0].strip()

    def text(self, notice_id: NoticeId, /, **fields: str | int) -> str:
        """Return a text with its fields filled in; braces inside a field stay as they are."""
        return self._texts[notice_id].format(**fields)

    def optional(self, notice_id: str) -> str:
        """Return a text without fields, or an empty one if there is no such id."""
        return self._texts.get(notice_id, "")

    def recognizes(self, text: str) -> bool:
        """Return whether a text begins like a notice, of this bot or another one.

        So a notice is never answered as a question.
        """
        first_line = _first_line(text)
        if _SIGNS.match(first_line) or self._is_own(first_line):
            return True
        return self is not ENGLISH and ENGLISH.recognizes(text)

    def _is_own(self, first_line: str) -> bool:
        if self._rate_limited and first_line.startswith(self._rate_limited):
            return True
        return first_line in self._fixed


def problems_of(texts: Mapping[str, object]) -> Iterator[str]:
    """Yield the errors in the texts of a language, one sentence each."""
    for notice_id, text in texts.items():
        english = _ENGLISH_TEXTS.get(notice_id)
        if english is None:
            yield f"{notice_id}: there is no such id"
        elif problem := _problem(text, fields_of(english)):
            yield f"{notice_id}: {problem}"


def _problem(text: object, wanted: frozenset[str]) -> str | None:
    if not isinstance(text, str):
        return "write a text in quotation marks"
    if not text.strip() or len(text) > MAX_CHARACTERS:
        return f"write 1 to {MAX_CHARACTERS} characters"
    if _CONTROL.search(text):
        return "control characters are not allowed"
    return _field_problem(text, wanted)


def _field_problem(text: str, wanted: frozenset[str]) -> str | None:
    try:
        fields = fields_of(text)
    except ValueError as error:
        return f"{error}; write {{{{ and }}}} for braces"
    if unknown := fields - wanted:
        return f"there is no field {_in_braces(unknown)} here"
    if missing := wanted - fields:
        return f"the field {_in_braces(missing)} is missing"
    return None


def _in_braces(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))


def _first_line(text: str) -> str:
    return shown_title(text.strip().partition("\n")[0])


def _english_texts() -> dict[str, str]:
    return tomllib.loads((files(__name__) / "english.toml").read_text(encoding="utf-8"))


_ENGLISH_TEXTS: Final = _english_texts()
ENGLISH: Final = Notices({})
