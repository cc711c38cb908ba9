"""Measures how many messages a second the old gateway's session store routes; see `environment`.

What is measured is the call that its gateway makes for every message, which finds the session of a
source. The sessions are there before: made with its own classes and left in the file that its store
reads at the start, because making them one message at a time takes minutes.
"""

import json
import os
import sys
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

from gateway.config import GatewayConfig, Platform  # type: ignore[import-not-found]
from gateway.session import (  # type: ignore[import-not-found]
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_key,
)

directory = Path(os.environ["HERMES_HOME"], "sessions")


def source_of(number: int) -> SessionSource:
    chat = str(number)
    return SessionSource(Platform.TELEGRAM, chat, user_id=chat, user_name="Ann Example")


def prepared(count: int) -> tuple[SessionStore, list[SessionSource]]:
    store = SessionStore(directory, GatewayConfig())
    sources = [source_of(number) for number in range(1, count + 1)]
    index = {}
    for source in sources:
        key, session_id = build_session_key(source), f"session-{source.chat_id}"
        now = datetime.now()  # noqa: DTZ005 - all it works with
        entry = SessionEntry(key, session_id, now, now, source, platform=source.platform)
        index[key] = entry.to_dict()
        store._db.create_session(session_id, "telegram", session_key=key, chat_id=source.chat_id)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sessions.json").write_text(json.dumps(index))
    return store, sources


def messages_per_second(count: int, seconds: float) -> float:
    store, sources = prepared(count)
    # The first one reads everything.
    first = store.get_or_create_session(sources[0]).session_id
    if first != "session-1" or len(store.list_sessions()) != count:
        raise RuntimeError("the store did not take the prepared sessions")
    turn = cycle(sources)
    done, begin = 0, perf_counter()
    while (took := perf_counter() - begin) < seconds or done == 0:
        for source in islice(turn, 10):
            store.get_or_create_session(source)
        done += 10
    return done / took


asked = json.loads(Path(sys.argv[1]).read_text())
rate = messages_per_second(asked["sessions"], asked["seconds"])
Path(sys.argv[2]).write_text(json.dumps({"per_second": rate}))
