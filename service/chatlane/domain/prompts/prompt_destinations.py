"""Describe connected platforms and delivery destinations to a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.catalog import DESTINATIONS
from chatlane.domain.prompts.sanitize import without_numbers
from chatlane_schemas.content.quotation import cleaned, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chatlane.domain.catalog import Destination, HomeChannel, Platform
    from chatlane.domain.prompts.sanitize import Redaction

LOCAL: Final = "local"
_HERE: Final = "local (files on this machine)"
_NAMELESS: Final = "Home"
_BY_ID: Final = '*A chat that somebody names by its id is addressed as `"platform:chat_id"`.*'


class Surroundings(NamedTuple):
    """The lines of a prompt around the one delivery option that differs from chat to chat.

    `has_origin` says whether the agent may send to that chat.
    """

    before_origin: tuple[str, ...]
    after_origin: tuple[str, ...]
    has_origin: bool = True


def surroundings_of(
    profile: str,
    platforms: Mapping[str, Platform],
    redaction: Redaction | None,
    *,
    hides_ids: bool,
    send_to: frozenset[Destination] = DESTINATIONS,
) -> Surroundings:
    """Return the lines on declared platforms and home channels for the sessions of a profile.

    Args:
        profile: As written in keys; only accounts that may address it are shown.
        redaction: Hides ids, if any platform hides them.
        hides_ids: Whether the platform of the session hides ids. The platform of a home channel
            may hide them as well.
        send_to: Where the agent may send on its own.
    """
    declared = [platform for _, platform in sorted(platforms.items())]
    channels = [
        _shown(target, channel, platform, redaction if hides_ids or platform.hides_ids else None)
        for platform in declared
        for target, channel in _homes(platform, profile)
        if "home" in send_to
    ]
    return Surroundings(
        (
            f"**Connected Platforms:** {', '.join((_HERE, *_connected(declared, profile)))}",
            *(("", "**Home Channels (default destinations):**") if channels else ()),
            *(f"  - {channel.target}: {channel.name} ({channel.ids})" for channel in channels),
            *(("", "**Delivery options for scheduled tasks:**") if send_to else ()),
        ),
        (
            *(f'- `"{channel.target}"` → Home channel ({channel.name})' for channel in channels),
            *(("", _BY_ID) if "chat" in send_to else ()),
        ),
        "origin" in send_to,
    )


def _connected(platforms: list[Platform], profile: str) -> Iterator[str]:
    for platform in platforms:
        is_reachable = any(profile in account.profiles for account in platform.accounts.values())
        if is_reachable and platform.name != LOCAL:
            yield f"{platform.name}: Connected ✓"


def _homes(platform: Platform, profile: str) -> Iterator[tuple[str, HomeChannel]]:
    having = [
        account for _, account in sorted(platform.accounts.items()) if account.home is not None
    ]
    for account in having:
        if account.home is not None and profile in account.profiles:
            # Usually a platform has one home, and its name is enough.
            is_only = len(having) == 1
            yield platform.name if is_only else f"{platform.name}/{account.name}", account.home


class _Home(NamedTuple):
    """A home channel as shown; name and ids are quoted."""

    target: str
    name: str
    ids: str


def _shown(
    target: str, home: HomeChannel, platform: Platform, redaction: Redaction | None
) -> _Home:
    name: str | None = cleaned(home.name)
    chat, thread = home.chat_id, home.thread_id
    if redaction is not None:
        name = without_numbers(cleaned(home.name), {chat})
        chat = redaction.chat(platform.name, chat)
        thread = thread and redaction.chat(platform.name, thread)
    ids = f"ID: {quoted(chat)}" + (f", thread: {quoted(thread)}" if thread else "")
    return _Home(target, quoted(name or _NAMELESS), ids)
