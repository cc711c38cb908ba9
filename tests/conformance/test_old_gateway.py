"""Where our decisions differ from those of the gateway we take over from, and nowhere else.

Both get the same few thousand inputs. Each difference has a reason with a rule that says, from the
input alone, whether it must occur: one that is not on the list fails, and so does one that is on
the list and does not occur.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.keys import NoConversation, ParsedKey, identity_of
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.catalog import Agent, Catalog, Platform
from chatlane.domain.policy import (
    KeyRules,
    ResetMode,
    ResetPolicy,
    SessionClock,
    boundary_before,
    reset_reason,
)
from chatlane_schemas.inbound import Chat, InboundEvent, Sender
from tests.support.old_gateway.environment import run_old_gateway

# It needs packages from an index on first use, so it is no part of the tests that need nothing.
pytestmark = pytest.mark.integration

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
PERSONAL: Final = frozenset({"whatsapp", "signal"})
KEYS: Final = 4000
RESETS: Final = 4000

NONE: Final[tuple[str | None, ...]] = (None, "")
PLAIN_IDS: Final = ("111", "-100200", "!room:example.org", "oc_1")
PEOPLE: Final = ("7", "@a:example.org", "on_1")
WHATSAPP_IDS: Final = (
    "60123456789@s.whatsapp.net",
    "60123456789:47@s.whatsapp.net",
    "+60123456789",
    "222@lid",
    "@lid",
    "bad id@lid",
    "status@broadcast",
)
SIGNAL_IDS: Final = ("+15551234567", "6f5c7c3e-0f5f-4a54-8d5e-0a3f7a1f2b3c")
GROUP_ON_WHATSAPP: Final = "120363000000000001@g.us"


@dataclass(frozen=True)
class Key:
    """An address with the rules in force."""

    platform: str
    kind: str
    chat: str | int | None
    thread: str | None
    user: str | None
    alt: str | None
    scope: str | None
    profile: str | None
    is_forum: bool | None
    per_user: bool
    per_thread: bool

    def theirs(self) -> dict[str, object]:
        return {
            "platform": self.platform,
            "chat_type": self.kind,
            "chat_id": self.chat,
            "thread_id": self.thread,
            "user_id": self.user,
            "user_id_alt": self.alt,
            "scope_id": self.scope,
            "profile": self.profile,
            "per_user": self.per_user,
            "per_thread": self.per_thread,
        }

    @property
    def is_dm(self) -> bool:
        return self.kind.lower() == "dm"

    def ours(self) -> ParsedKey | NoConversation:
        event = InboundEvent.model_validate_json(
            InboundEvent(
                id="e",
                at=AT,
                platform=self.platform,
                account="bot",
                scope=self.scope,
                profile=self.profile,
                chat=Chat(
                    id=str(self.chat) if self.chat is not None else None, is_forum=self.is_forum
                ),
                thread_id=self.thread,
                sender=Sender(id=self.user, alt_id=self.alt),
            )
            .model_dump_json()
            .replace('"kind":"dm"', f'"kind":"{self.kind}"')
        )
        address = address_of(event)
        persons = self.platform in PERSONAL
        book = AliasBook()
        book.learn(address, AT, persons=persons)
        resolved = book.resolve(address, persons=persons).address
        return identity_of(resolved, KeyRules(self.per_user, self.per_thread))


def keys() -> list[Key]:
    random = Random(1)  # noqa: S311 - the same inputs every time
    rules = {"per_user": True, "per_thread": False}
    place = Key("discord", "dm", "a:b", None, None, None, None, None, None, **rules)
    made: dict[Key, None] = {place: None, replace(place, chat="a", thread="b"): None}
    while len(made) < KEYS:
        platform = random.choice(
            (
                "telegram",
                "discord",
                "slack",
                "matrix",
                "feishu",
                "whatsapp",
                "whatsapp_cloud",
                "signal",
            )
        )
        kind = random.choice(("dm", "dm", "group", "channel", "forum", "thread", "DM", "Group"))
        is_dm = kind.lower() == "dm"
        chats: tuple[str | int, ...] = (*PLAIN_IDS, 111)
        people: tuple[str, ...] = PEOPLE
        if platform == "whatsapp":
            chats = WHATSAPP_IDS if is_dm else (GROUP_ON_WHATSAPP,)
            people = WHATSAPP_IDS
        elif platform == "signal":
            chats, people = (SIGNAL_IDS if is_dm else PLAIN_IDS), SIGNAL_IDS
        made[
            Key(
                platform=platform,
                kind=kind,
                chat=random.choice((*NONE, *chats, *chats)),
                thread=random.choice((*NONE, None, "0", "1", "42", "t:9")),
                user=random.choice((*NONE, *people)),
                alt=random.choice((*NONE, None, *people)) if platform != "whatsapp" else None,
                scope=random.choice((None, "", "T1", "T2")),
                profile=random.choice((None, "", "default", "main", "coder")),
                is_forum=random.choice((None, True, False)),
                per_user=random.random() < 0.7,
                per_thread=random.random() < 0.3,
            )
        ] = None
    return list(made)


def in_their_words(key: Key, ours: ParsedKey | NoConversation) -> str:
    """Return our key in their layout, which has no account, class and scope."""
    if isinstance(ours, NoConversation):
        return "none"
    parts = (
        "agent",
        ours.profile,
        ours.platform,
        key.kind.lower(),
        ours.chat,
        ours.thread,
        ours.user,
    )
    return ":".join(part for part in parts if part is not None)


def counted_people(key: Key) -> list[str]:
    """Return the ids of people that stand in their key."""
    participant = key.alt or key.user
    if key.kind == "dm":
        chat = str(key.chat or "")
        return [chat, *([participant or ""] if not chat.partition("@")[0] else [])]
    isolated = key.per_user and (not key.thread or key.per_thread)
    return [participant or ""] if isolated else []


def is_written_differently(key: Key) -> bool:
    """Whether our form of a person's id is another one than its bare number."""
    if key.platform != "whatsapp":
        return False
    numbers = ((one, _bare(one)) for one in counted_people(key))
    return any(number and person_form("whatsapp", one) != number for one, number in numbers)


def _has_chat(key: Key) -> bool:
    chat = str(key.chat or "")
    return bool(_bare(chat) if key.platform == "whatsapp" else chat)


def _bare(one: str) -> str:
    return one.lstrip("+").split(":")[0].split("@")[0]


Rule = Callable[[Key], bool]

KEY_DIFFERENCES: Final[dict[str, Rule]] = {
    # They compare the kind as it is written: "DM" is a group to them. The contract folds it.
    "upper case in a kind is no other kind": lambda key: key.kind != key.kind.lower(),
    # Adapters write 0 for "no thread"; to them it is a thread and hides the person.
    "thread 0 is none": lambda key: key.thread == "0",
    # Reply chains have numbers like topics, and would cut a conversation into pieces.
    "a thread of a chat that is no forum is an address only": lambda key: (
        bool(key.thread) and key.is_forum is False
    ),
    # It comes as 1 or not at all, depending on the client.
    "the General topic of a Telegram forum is none": lambda key: (
        key.platform == "telegram" and not key.is_dm and key.thread == "1"
    ),
    # Everybody without ids would share one history.
    "a DM with neither chat nor sender is refused": lambda key: (
        key.is_dm and not (_has_chat(key) or key.user or key.alt)
    ),
    # Who writes with both ids is one person, whichever of them is the chat's next time.
    "a person on Signal has two ids": lambda key: (
        key.platform == "signal"
        and key.is_dm
        and key.chat == key.user
        and bool(key.chat and key.alt)
        and key.alt != key.chat
    ),
    # A phone number and a hidden id may have the same digits, and what is no id of a person
    # stays as it is.
    "ids of people on WhatsApp keep what tells a hidden id from a number": is_written_differently,
    # It is looked up although the key of the group does not need it.
    "an id that is none fails no message": lambda key: (
        key.platform == "whatsapp" and not key.is_dm and key.user == "bad id@lid"
    ),
    # They join parts of any type and fail on a number.
    "a number is an id": lambda key: not key.is_dm and isinstance(key.chat, int),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    asked = {
        "keys": [one.theirs() for one in keys()],
        "resets": [one.theirs() for one in resets()],
    }
    said: dict[str, Any] = run_old_gateway("answers.py", home, asked)
    return said


def unexplained(
    inputs: list[Any], differs: list[bool], rules: dict[str, Callable[[Any], bool]]
) -> tuple[list[Any], Counter[str]]:
    """Return the inputs whose difference no rule foresaw, or that a rule foresaw in vain."""
    wrong: list[Any] = []
    found: Counter[str] = Counter()
    for one, is_other in zip(inputs, differs, strict=True):
        reasons = [name for name, rule in rules.items() if rule(one)]
        found.update(reasons)
        if bool(reasons) != is_other:
            wrong.append((one, reasons))
    return wrong, found


def test_keys_differ_for_these_reasons_only(answers: dict[str, Any]) -> None:
    inputs = keys()
    differs = [
        in_their_words(one, one.ours()) != theirs
        for one, theirs in zip(inputs, answers["keys"], strict=True)
    ]
    wrong, found = unexplained(inputs, differs, KEY_DIFFERENCES)
    assert wrong[:5] == []
    assert found.keys() == KEY_DIFFERENCES.keys()


def test_what_they_join_we_keep_apart(answers: dict[str, Any]) -> None:
    """One key of theirs is several of ours in two workspaces, and where an id has a colon."""
    reasons: set[str] = set()
    by_theirs: dict[str, set[ParsedKey]] = {}
    for one, theirs in zip(keys(), answers["keys"], strict=True):
        ours = one.ours()
        if isinstance(ours, NoConversation) or any(rule(one) for rule in KEY_DIFFERENCES.values()):
            continue
        joined = by_theirs.setdefault(theirs, set())
        for other in joined:
            is_same_place = other._replace(scope=ours.scope) == ours
            reasons.add("scope" if is_same_place else "colon")
            assert is_same_place or theirs == "agent:main:discord:dm:a:b"
        joined.add(ours)
    assert reasons == {"scope", "colon"}


@dataclass(frozen=True)
class Reset:
    """A conversation at the moment of the next message; `quiet` is ours alone."""

    zone: str
    now: datetime
    updated: datetime
    started: datetime
    default: ResetPolicy
    of_class: ResetPolicy | None
    of_platform: ResetPolicy | None
    has_live_turn: bool

    @property
    def policy(self) -> ResetPolicy:
        catalog = Catalog(
            platforms={"telegram": Platform("telegram", KeyRules(), reset=self.of_platform)},
            profiles={"main": "main"},
            agents={"main": Agent("main")},
            default_reset=self.default,
            class_reset={"dm": self.of_class} if self.of_class else {},
        )
        return catalog.reset_policy_for("telegram", "dm")

    def theirs(self) -> dict[str, object]:
        policies = {
            name: its
            and {
                "mode": its.mode,
                "at_hour": its.at_hour,
                "idle_minutes": its.idle // timedelta(minutes=1),
            }
            for name, its in (
                ("default", self.default),
                ("of_class", self.of_class),
                ("of_platform", self.of_platform),
            )
        }
        times = {name: self.wall(name).isoformat() for name in ("now", "updated", "started")}
        return {**policies, **times, "has_live_turn": self.has_live_turn}

    def wall(self, name: str) -> datetime:
        instant: datetime = getattr(self, name)
        return instant.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None, fold=0)

    def ours(self, policy: ResetPolicy | None = None) -> str | None:
        its = policy or self.policy
        clock = SessionClock(
            last_activity_at=self.updated,
            served_boundary=boundary_before(self.started, its),
            started_at=self.started,
            has_live_turn=self.has_live_turn,
        )
        return reset_reason(clock, its, self.now)


def policy(random: Random, zone: str) -> ResetPolicy:
    modes: tuple[ResetMode, ...] = ("none", "idle", "daily", "both")
    return ResetPolicy(
        mode=random.choice(modes),
        at_hour=random.choice((0, 2, 3, 4, 12, 23)),
        timezone=zone,
        idle=timedelta(minutes=random.choice((10, 60, 1440, 4320))),
    )


def resets() -> list[Reset]:
    random = Random(2)  # noqa: S311 - the same inputs every time
    made = []
    for _ in range(RESETS):
        zone = random.choice(("UTC", "Europe/Berlin"))
        # Most of them around the two clock changes of the year.
        day = random.choice(((3, 29), (10, 25), (random.randint(1, 12), random.randint(1, 28))))
        start = datetime(2026, *day, tzinfo=UTC)
        updated = start + timedelta(minutes=15 * random.randint(-96, 96))
        exact = random.choice((timedelta(0), timedelta(microseconds=1), timedelta(minutes=7)))
        now = updated + random.choice((-1, 0, 1, 1, 1)) * (
            timedelta(minutes=15 * random.randint(0, random.choice((3, 200)))) + exact
        )
        made.append(
            Reset(
                zone=zone,
                now=now,
                updated=updated,
                started=updated - timedelta(minutes=15 * random.choice((0, 0, 2, 40, 300))),
                default=policy(random, zone),
                of_class=policy(random, zone) if random.random() < 0.3 else None,
                of_platform=policy(random, zone) if random.random() < 0.3 else None,
                has_live_turn=random.random() < 0.1,
            )
        )
    return made


def is_cut_by_a_clock_change(one: Reset) -> bool:
    """Whether silence is over by the clocks on the wall and not in truth, or the other way round."""
    its = one.policy
    if one.has_live_turn or not its.resets_idle:
        return False
    on_the_wall = one.wall("now") - one.wall("updated") > its.idle
    return on_the_wall != (one.now - one.updated > its.idle)


def literal(one: Reset) -> str | None:
    return one.ours(replace(one.policy, quiet=timedelta(0)))


RESET_DIFFERENCES: Final[dict[str, Callable[[Reset], bool]]] = {
    # They cut a talk between two sentences when the hour strikes.
    "a daily reset waits until the talk is quiet": lambda one: (
        literal(one) == "daily"
        and one.ours() is None
        and one.updated < boundary_before(one.now, one.policy)
    ),
    # What was put off by a talk or a hold would never come for who writes again right after.
    "a daily reset that was put off comes later the same day": lambda one: (
        one.ours() == "daily" and one.updated >= boundary_before(one.now, one.policy)
    ),
    # They subtract clocks on the wall, which jump.
    "silence is measured in time that passed": is_cut_by_a_clock_change,
}


def test_resets_differ_for_these_reasons_only(answers: dict[str, Any]) -> None:
    inputs = resets()
    ours = [one.ours() for one in inputs]
    differs = [mine != its for mine, its in zip(ours, answers["resets"], strict=True)]
    wrong, found = unexplained(inputs, differs, RESET_DIFFERENCES)
    assert wrong[:5] == []
    assert found.keys() == RESET_DIFFERENCES.keys()
    assert Counter(answers["resets"]).keys() == {None, "idle", "daily"}
