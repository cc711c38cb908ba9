"""The content of a request: new words, and the conversation that they belong to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from chatlane_bridges.answers.answer_text import PARAGRAPH
from chatlane_bridges.http.problems import invalid
from chatlane_bridges.openai.message_lists import Exchange

_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_LONGEST_NAME: Final = 256
_LONGEST_KEY: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """New words of a person, and where they belong.

    Attributes:
        model: Id of the model.
        words: What the person said after the last answer.
        history: What was said before, as far as the client sent it.
        name: Name of the conversation, if the client gave one.
        session_id: Session that the client named; the words are added to it.
        previous: Session and message of the response that the words follow.
        key: Key under which the client repeats the request.
        is_repeated: Whether the client says that it sent the request before.
    """

    model: str
    words: str
    history: tuple[Exchange, ...] = ()
    name: str | None = None
    session_id: UUID | None = None
    previous: tuple[UUID, UUID] | None = None
    key: str | None = None
    is_repeated: bool = False

    def with_headers(self, headers: Mapping[str, str], conversation_header: str) -> "Ask":
        """Return the ask with what the headers of its request say.

        Raises:
            ApiProblem: A header is too long.
        """
        key, name = headers.get("idempotency-key"), headers.get(conversation_header)
        if len(key or "") > _LONGEST_KEY:
            raise invalid("The Idempotency-Key is too long.")
        if len(name or "") > _LONGEST_NAME:
            raise invalid("The name of the conversation is too long.")
        return replace(
            self,
            key=key or None,
            name=name or self.name,
            is_repeated=headers.get("x-stainless-retry-count", "0") != "0",
        )


class _Body(BaseModel):
    # Parameters of sampling and others that an agent decides are ignored.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    model: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    stream: bool = False
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None

    @property
    def name(self) -> str | None:
        """Return the name of the conversation in the metadata."""
        name = (self.metadata or {}).get("conversation")
        return name[:_LONGEST_NAME] if name else None

    def _check_tools(self) -> None:
        if self.tools:
            raise invalid(
                "Tools of a client are not called: the agent has its own.", "tools", "unsupported"
            )


class StreamOptions(BaseModel):
    """The options of a streamed completion."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatBody(_Body):
    """Body of a request for a chat completion."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
    stream_options: StreamOptions | None = None
    n: int | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None

    def ask(self) -> Ask:
        """Return the words and the conversation of the request.

        Raises:
            ApiProblem: The body asks for something that agents do not do.
        """
        self._check_tools()
        if self.functions:
            raise invalid("Functions of a client are not called.", "functions", "unsupported")
        if self.n not in {None, 1}:
            raise invalid("There is one answer: n is 1.", "n", "unsupported")
        if (self.response_format or {}).get("type", "text") != "text":
            raise invalid("Answers are text.", "response_format", "unsupported")
        if set(self.modalities or ()) - {"text"}:
            raise invalid("Answers are text.", "modalities", "unsupported")
        words, history = split(self.messages, "messages")
        return Ask(model=self.model, words=words, history=history, name=self.name)


class TextFormat(BaseModel):
    """Form of the text of a response."""

    model_config = ConfigDict(extra="ignore")

    format: dict[str, Any] | None = None


class ConversationId(BaseModel):
    """A conversation by its id."""

    id: str


class ResponseBody(_Body):
    """Body of a request for a response."""

    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
    background: bool | None = None
    conversation: str | ConversationId | None = None
    previous_response_id: str | None = None
    text: TextFormat | None = None

    def ask(self) -> Ask:
        """Return the words and the conversation of the request.

        Raises:
            ApiProblem: The body asks for something that agents do not do.
        """
        self._check_tools()
        if ((self.text and self.text.format) or {}).get("type", "text") != "text":
            raise invalid("Answers are text.", "text.format", "unsupported")
        if self.background and self.stream:
            raise invalid("A response is either in the background or streamed.", "background")
        if isinstance(self.input, str):
            messages: list[dict[str, Any]] = [{"role": "user", "content": self.input}]
        else:
            messages = self.input
        words, history = split(messages, "input")
        found, previous = self.conversation, self.previous_response_id
        if found is not None and previous is not None:
            raise invalid("Name either a conversation or a previous response.", "conversation")
        name = found.id if isinstance(found, ConversationId) else found
        return Ask(
            model=self.model,
            words=words,
            # What the service has counts, not what a client adds to it.
            history=() if name or previous else history,
            name=self.name,
            session_id=None if name is None else session_of(name),
            previous=None if previous is None else message_of(previous),
        )


def split(messages: Sequence[dict[str, Any]], param: str) -> tuple[str, tuple[Exchange, ...]]:
    """Return the words after the last answer, and the exchanges before them.

    Raises:
        ApiProblem: There are no new words, or they are no text.
    """
    history: list[Exchange] = []
    texts: list[str] = []
    answered: list[str] = []
    last_answer = max(
        (place for place, found in enumerate(messages) if _role(found) == "assistant"), default=-1
    )
    for place, message in enumerate(messages):
        role = _role(message)
        if role == "user":
            if answered:
                history.append(Exchange(PARAGRAPH.join(texts), PARAGRAPH.join(answered)))
                texts, answered = [], []
            is_new = place > last_answer
            texts.append(_text(message.get("content"), param if is_new else None))
        elif role == "assistant":
            answered.append(_text(message.get("content"), None))
        elif place > last_answer and role == "tool":
            raise invalid("Tools of a client are not called.", param, "unsupported")
    if answered or not PARAGRAPH.join(texts).strip():
        raise invalid("The last message must be one of a person, with text.", param)
    return PARAGRAPH.join(texts), tuple(history)


def _role(message: dict[str, Any]) -> str:
    if message.get("type", "message") != "message":
        kind = str(message["type"])
        return "tool" if kind.endswith("_output") else kind
    return str(message.get("role"))


def _text(content: object, param: str | None) -> str:
    """Return the text of a message; other parts of a new one are refused.

    Args:
        content: Its content.
        param: Where it is, of a new message.

    Raises:
        ApiProblem: A new message has a part that is no text.
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(part, dict) and part.get("type") in _TEXTS and isinstance(text, str):
            texts.append(text)
        elif param is not None:
            raise invalid("Messages have text only.", param, "unsupported")
    return "".join(texts)


def response_id(session_id: UUID, message_id: UUID) -> str:
    """Return the id of the response to a message."""
    return f"resp_{session_id.hex}{message_id.hex}"


def conversation_id(session_id: UUID) -> str:
    """Return the id of a session as a conversation."""
    return f"conv_{session_id.hex}"


def message_of(found: str) -> tuple[UUID, UUID]:
    """Return session and message of a response.

    Raises:
        ApiProblem: It is no id of a response.
    """
    ids = found.removeprefix("resp_")
    try:
        return UUID(hex=ids[:32]), UUID(hex=ids[32:])
    except ValueError:
        raise invalid("There is no such response.", "previous_response_id", "not_found") from None


def session_of(found: str) -> UUID:
    """Return the session of a conversation.

    Raises:
        ApiProblem: It is no id of a conversation.
    """
    try:
        return UUID(hex=found.removeprefix("conv_"))
    except ValueError:
        raise invalid("There is no such conversation.", "conversation", "not_found") from None
