"""Name the room of a shared session. Pure.

A room is a chat of several people on an account. Its name is unambiguous, like the owner of a
session: platform, account and chat, and the scope if there is one.
"""

from __future__ import annotations

from functools import lru_cache

from chatlane.domain.addressing.keys import MalformedKeyError, escaped, parse_session_key, unescaped


def room_name(platform: str, account: str, scope: str | None, chat: str) -> str:
    """Return the name of a room; injective."""
    names = [platform, account, chat] if scope is None else [platform, account, chat, scope]
    return ":".join(map(escaped, names))


def account_of_room(room: str) -> tuple[str, str]:
    """Return platform and account of the name of a room."""
    platform, account, *_ = map(unescaped, room.split(":"))
    return platform, account


# Runs for every message that opens a session.
@lru_cache(maxsize=8192)
def room_of(session_key: str) -> str | None:
    """Return the room whose people share the sessions of a key; None if it is no such key.

    The conversation of one person in a group is that person's, and a private one is in no room.
    """
    try:
        key = parse_session_key(session_key)
    except MalformedKeyError:
        return None
    if key.chat_class != "group" or key.chat is None or key.user is not None:
        return None
    return room_name(key.platform, key.account, key.scope, key.chat)
