"""Find the session that a request continues, or open another one."""

from hashlib import sha256
from typing import Final
from uuid import UUID

from chatlane_bridges.answers.answer_streams import Place
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.problems import invalid
from chatlane_bridges.openai.asks import Ask
from chatlane_bridges.openai.message_lists import StoredExchange, is_asked, position
from chatlane_bridges.openai.settings import ORIGIN, DeclaredModel
from chatlane_bridges.openai.stored_conversations import Read, read_newest
from chatlane_client import SessionNotFoundError, Submission
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import SessionOrder, SessionView
from chatlane_schemas.session_api.transcripts import AppendedRow

# Conversations with the same name or the same first words that are compared with a list.
_MAX_CANDIDATES: Final = 10
# Exchanges of a client that another session begins with.
_MAX_EXCHANGES: Final = 100
_MAX_HISTORY_CHARACTERS: Final = 200_000
# The names of the default profile.
_MAIN: Final = frozenset({"default", "main"})


class ConversationFinder:
    """Finds the place of the words of one person."""

    def __init__(self, service: PersonService, model: DeclaredModel) -> None:
        self._service = service
        self._model = model

    async def find(self, ask: Ask) -> Place:
        """Return where the words of a request belong.

        Raises:
            SessionNotFoundError: The person has no such conversation.
            ApiProblem: The conversation is one of another model.
        """
        if ask.session_id is not None:
            return await self._append(await self._tip(ask.session_id), ask)
        if ask.previous is not None:
            return await self._follow_response(*ask.previous, ask)
        label = _label(ask)
        candidates = await self._candidates(label)
        if ask.history:
            return await self._continue_list(candidates, ask, label)
        if ask.name is not None:
            if candidates:
                return await self._append(await self._service.tip(candidates[0].id), ask)
        elif ask.is_repeated:
            for session in candidates:
                read = await read_newest(self._service, session)
                if not read.exchanges or len(read.exchanges) == 1:
                    return await self._continue(session, read, -1, ask, label)
        return await self._open(ask, label)

    async def _tip(self, session_id: UUID) -> SessionView:
        session = await self._service.tip(session_id)
        names = _MAIN if self._model.profile in _MAIN else {self._model.profile}
        if session.profile is not None and session.profile not in names:
            raise invalid("The conversation is one of another model.", "model")
        return session

    async def _candidates(self, label: str) -> tuple[SessionView, ...]:
        page = await self._service.sessions.list_page(
            order=SessionOrder.ACTIVITY,
            limit=_MAX_CANDIDATES,
            origin=ORIGIN,
            label=label,
            profile=self._model.profile,
            archived=False,
        )
        # A router of an earlier release does not know the filters.
        return tuple(session for session in page.sessions if label in session.labels)

    async def _follow_response(self, session_id: UUID, message_id: UUID, ask: Ask) -> Place:
        session = await self._tip(session_id)
        read = await read_newest(self._service, session)
        for place, exchange in enumerate(read.exchanges):
            if message_id in exchange.message_ids:
                return await self._continue(session, read, place, ask, None)
        # No agent has begun to answer it.
        return await self._append(session, ask, read.last_seq)

    async def _continue_list(
        self, candidates: tuple[SessionView, ...], ask: Ask, label: str
    ) -> Place:
        branch: tuple[SessionView, Read, int] | None = None
        for candidate in candidates:
            session = await self._service.tip(candidate.id)
            read = await read_newest(self._service, session)
            place = position(ask.history, read.exchanges)
            if place is None:
                continue
            rest = read.exchanges[place + 1 :]
            if not rest or self._is_repeated(session, rest, ask):
                return await self._continue(session, read, place, ask, label)
            branch = branch or (session, read, place)
        if branch is None:
            return await self._open(ask, label)
        return await self._continue(*branch, ask, label)

    @staticmethod
    def _is_repeated(session: SessionView, rest: list[StoredExchange], ask: Ask) -> bool:
        """Return whether words were submitted by an earlier sending of the same request."""
        if not is_asked(ask.words, rest[0]) or not rest[0].message_ids:
            return False
        is_running = len(rest) == 1 and session.is_busy
        return is_running or ask.is_repeated or ask.key is not None

    async def _continue(
        self, session: SessionView, read: Read, place: int, ask: Ask, label: str | None
    ) -> Place:
        """Return the place behind an exchange: at the end, in the same exchange, or in a copy."""
        rest = read.exchanges[place + 1 :]
        if not rest:
            return await self._append(session, ask, read.last_seq)
        if self._is_repeated(session, rest, ask):
            # Words that answered a question of a turn do not get what it said before.
            is_reply = place >= 0 and read.exchanges[place].turn_id == rest[0].turn_id
            turn_id = rest[0].turn_id if is_reply else None
            return Place(session, joined=Submission(session, rest[0].message_ids[0], turn_id))
        if place < 0:
            return await self._open(ask, label)
        before = read.exchanges[place]
        copy = await self._service.sessions.fork(
            before.session_id or session.id,
            through_seq=before.last_seq,
            request_id=self._id(ask, "fork"),
        )
        labels = [label] if label is not None else session.labels
        if labels:
            copy = await self._service.sessions.label(copy.id, labels)
        return Place(copy, before.last_seq, self._id(ask, "submit"))

    async def _append(self, session: SessionView, ask: Ask, last_seq: int | None = None) -> Place:
        if session.ended_at is not None or session.is_suspended:
            session = await self._service.sessions.reopen(session.id)
        if ask.key is not None:
            return Place(session, 0, self._id(ask, "submit"))
        if last_seq is None:
            last_seq = (await read_newest(self._service, session)).last_seq
        # Two sendings of a request meet, from whichever process.
        request_id = self._hashed("append", str(session.id), str(last_seq), ask.words)
        return Place(session, last_seq, request_id)

    async def _open(self, ask: Ask, label: str | None) -> Place:
        """Open a session that begins with what the client says was said before."""
        create = self._service.sessions.create
        model, profile = self._model.model, self._model.profile
        request_id = self._id(ask, "create")
        session = await create(origin=ORIGIN, profile=profile, model=model, request_id=request_id)
        if request_id is not None:
            try:
                session = await self._service.tip(session.id)
            except SessionNotFoundError:
                # It was deleted since.
                session = await create(origin=ORIGIN, profile=profile, model=model)
        rows = _rows(ask)
        if rows:
            await self._service.transcripts.append(
                session.id, rows, request_id=self._id(ask, f"history {session.id}")
            )
        if label is not None:
            session = await self._service.sessions.label(session.id, [label])
        return Place(session, 0, self._id(ask, "submit"))

    def _id(self, ask: Ask, what: str) -> str | None:
        return None if ask.key is None else self._hashed(what, ask.key)

    def _hashed(self, *about: str) -> str:
        """Return an id of a request, which no other person gets."""
        person = self._service.person.model_dump_json()
        return sha256("\0".join((ORIGIN, person, *about)).encode()).hexdigest()


def _label(ask: Ask) -> str:
    """Return the label of the sessions in which a conversation may be."""
    if ask.name is not None:
        return f"conversation {_short(ask.name)}"
    return f"begins {_short(ask.history[0].words if ask.history else ask.words)}"


def _short(text: str) -> str:
    return sha256(text.strip().encode()).hexdigest()[:16]


def _rows(ask: Ask) -> list[AppendedRow]:
    """Return the newest exchanges of a client as rows, as far as a session takes them at once."""
    rows: list[AppendedRow] = []
    size = 0
    for exchange in reversed(ask.history[-_MAX_EXCHANGES:]):
        size += len(exchange.words) + len(exchange.answer)
        if size > _MAX_HISTORY_CHARACTERS:
            break
        sides = ((Role.USER, exchange.words), (Role.ASSISTANT, exchange.answer))
        rows = [*(AppendedRow(role=role, content=text) for role, text in sides if text), *rows]
    return rows
