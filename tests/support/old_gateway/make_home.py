"""Holds some conversations with the old gateway and leaves its home behind; see `environment`.

Ends without closing the database, as a gateway that was killed does: the newest rows are only in
the log beside it.
"""

import json
import os
import sys
from pathlib import Path

from gateway.config import GatewayConfig, Platform  # type: ignore[import-not-found]
from gateway.session import SessionSource, SessionStore  # type: ignore[import-not-found]

home = Path(os.environ["HERMES_HOME"])
mapping = home / "platforms" / "whatsapp" / "session"
mapping.mkdir(parents=True)
(mapping / "lid-mapping-999999999999999.json").write_text('"60123456789"')

store = SessionStore(home / "sessions", GatewayConfig())
database = store._db
held: dict[str, dict[str, str]] = {}


def talk(name: str, source: SessionSource, *rows: dict[str, object]) -> str:
    entry = store.get_or_create_session(source)
    for row in rows:
        store.append_to_transcript(entry.session_id, row)
    held[name] = {"key": entry.session_key, "id": entry.session_id}
    return str(entry.session_id)


def said(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


ann = SessionSource(Platform.TELEGRAM, "111", user_id="111", user_name="Ann")
call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
details = {"reasoning_details": [{"type": "reasoning.text", "signature": "EqQ="}]}
talk(
    "dm",
    ann,
    said("user", "what time is it?", platform_message_id="41"),
    said("assistant", "", tool_calls=[call], reasoning="they want the time", **details),
    said("tool", "noon", tool_call_id="c1", tool_name="clock"),
    said("assistant", "Noon."),
    said("user", [{"type": "text", "text": "and here?"}, {"type": "image_url"}]),
    said("stranger", "who am I?"),
)
database.set_session_title(held["dm"]["id"], "The time")
spent = {"estimated_cost_usd": 0.5, "actual_cost_usd": 0.1}
database.update_token_counts(held["dm"]["id"], 812, 77, "small-1", **spent)
database.update_token_counts(held["dm"]["id"], 8, 3, "small-1", actual_cost_usd=0.2)

group = {"chat_type": "group", "chat_name": "Team"}
talk(
    "group",
    SessionSource(Platform.TELEGRAM, "-100200", user_id="7", **group),
    said("user", "mine alone"),
)
talk(
    "topic",
    SessionSource(Platform.TELEGRAM, "-100300", user_id="7", thread_id="5", **group),
    said("user", "for all of us"),
)
talk(
    "slack",
    SessionSource(Platform.SLACK, "C1", user_id="U1", scope_id="T1", **group),
    said("user", "in a workspace"),
)
talk(
    "whatsapp",
    SessionSource(Platform.WHATSAPP, "999999999999999@lid", user_id="999999999999999@lid"),
    said("user", "by a hidden id"),
)

long = SessionSource(Platform.TELEGRAM, "222", user_id="222")
first = talk("compressed", long, said("user", "the beginning"), said("assistant", "much talk"))
database.end_session(first, "compression")
database.create_session("tip", "telegram", parent_session_id=first)
database.append_message("tip", "user", "[summary]")
store.get_or_create_session(long)

undone = SessionSource(Platform.TELEGRAM, "333", user_id="333")
talk("undone", undone, said("user", "kept"), said("assistant", "kept"), said("user", "taken back"))
store.rewind_session(held["undone"]["id"])

reset = SessionSource(Platform.TELEGRAM, "444", user_id="444")
talk("before reset", reset, said("user", "old"))
store.reset_session(held["before reset"]["key"])
talk("after reset", reset, said("user", "new"))

stuck = SessionSource(Platform.TELEGRAM, "555", user_id="555")
talk("suspended", stuck, said("user", "stuck"))
store.suspend_session(held["suspended"]["key"])

config = {"_branched_from": held["dm"]["id"], "cwd": "/srv/notes", "temperature": 0.5}
database.create_session(
    "branch", "telegram", parent_session_id=held["dm"]["id"], model_config=config
)
database.append_message("branch", "user", "what time is it?")
database.create_session("terminal", "cli")
database.append_message("terminal", "user", "typed")
database.create_session("helper", "cron")

Path(sys.argv[2]).write_text(json.dumps(held))
sys.stdout.flush()
os._exit(0)
