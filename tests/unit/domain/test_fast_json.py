"""Bodies that are written without their models are what the models would write."""

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.fast_json import session_started, turn_notice
from chatlane.domain.states import Session
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.events import ResetReason, SessionStarted
from chatlane_schemas.inbound import Chat, Sender
from chatlane_schemas.source import Source
from chatlane_schemas.turns import TurnNotice

times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001 - made aware
    lambda one: one.replace(tzinfo=UTC)
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
sources = st.builds(
    Source,
    platform=st.just("telegram"),
    account=st.just("bot"),
    chat=st.builds(Chat, id=texts, name=texts),
    thread_id=st.none() | texts,
    sender=st.builds(Sender, id=texts, name=st.none() | texts),
)


@given(times, st.uuids(), st.uuids(), st.integers(1, 2**31 - 1))
def test_a_notice(at: datetime, turn: UUID, session: UUID, dispatch: int) -> None:
    body = turn_notice("turn:1", at, turn, session, "main", dispatch)
    notice = TurnNotice(
        id="turn:1", at=at, turn_id=turn, session_id=session, agent="main", dispatch=dispatch
    )
    assert body == encode(notice)


@given(
    times,
    st.uuids(),
    texts,
    sources,
    st.none() | st.sampled_from(ResetReason),
    st.none() | st.uuids(),
)
def test_a_started_session(  # noqa: PLR0917 - one for each strategy
    at: datetime,
    session_id: UUID,
    key: str,
    source: Source,
    reason: ResetReason | None,
    previous: UUID | None,
) -> None:
    session = Session(session_id, key, "main", "telegram", at)
    body = session_started("1", session, encode_source(source), reason, previous)
    assert decode(SessionStarted, body) == SessionStarted(
        id="1",
        at=at,
        session_id=session_id,
        session_key=key,
        agent="main",
        source=source,
        reason=reason,
        previous_session_id=previous,
    )


def encode_source(source: Source) -> str:
    return source.model_dump_json(exclude_none=True)
