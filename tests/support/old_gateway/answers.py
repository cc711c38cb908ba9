"""What the old gateway says about generated inputs: keys, resets, and prompts."""

import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway import session  # type: ignore[import-not-found]
from gateway.config import (  # type: ignore[import-not-found]
    GatewayConfig,
    HomeChannel,
    Platform,
    SessionResetPolicy,
)


def key_of(given: dict[str, object]) -> str:
    fields = dict(given)
    rules = {name: fields.pop(name) for name in ("per_user", "per_thread", "profile")}
    source = session.SessionSource(Platform(fields.pop("platform")), **fields)
    try:
        return str(
            session.build_session_key(
                source,
                group_sessions_per_user=rules["per_user"],
                thread_sessions_per_user=rules["per_thread"],
                profile=rules["profile"],
            )
        )
    except (TypeError, ValueError) as error:
        return type(error).__name__


def reason_of(store: session.SessionStore, given: dict[str, Any]) -> str | None:
    # Clocks on the wall, without a zone, are all it works with.
    now, updated, started = (
        datetime.fromisoformat(str(given[name])) for name in ("now", "updated", "started")
    )
    session._now = lambda: now
    policies = {name: given[name] for name in ("default", "of_class", "of_platform")}
    made = {name: SessionResetPolicy(**its) if its else None for name, its in policies.items()}
    config = store.config
    config.default_reset_policy = made["default"]
    config.reset_by_type = {"dm": made["of_class"]} if made["of_class"] else {}
    config.reset_by_platform = (
        {Platform.TELEGRAM: made["of_platform"]} if made["of_platform"] else {}
    )
    store._has_active_processes_fn = lambda _key: given["has_live_turn"]
    source = session.SessionSource(Platform.TELEGRAM, "1")
    entry = session.SessionEntry("k", "s", created_at=started, updated_at=updated)
    return store._should_reset(entry, source)  # type: ignore[no-any-return]


def block_of(given: dict[str, Any]) -> str:
    fields = dict(given)
    rules = {name: fields.pop(name) for name in ("per_user", "per_thread")}
    connected = [Platform(one) for one in fields.pop("connected")]
    homes = {
        Platform(name): HomeChannel(Platform(name), its["chat_id"], its["name"])
        for name, its in fields.pop("homes").items()
    }
    redact = fields.pop("redact")
    source = session.SessionSource(Platform(fields.pop("platform")), **fields)
    context = session.SessionContext(
        source,
        connected,
        homes,
        session.is_shared_multi_user_session(
            source,
            group_sessions_per_user=rules["per_user"],
            thread_sessions_per_user=rules["per_thread"],
        ),
    )
    return str(session.build_session_context_prompt(context, redact_pii=redact))


asked = json.loads(Path(sys.argv[1]).read_text())
its_store = session.SessionStore(Path(os.environ["HERMES_HOME"], "sessions"), GatewayConfig())
answers = {
    "keys": [key_of(one) for one in asked.get("keys", ())],
    "blocks": [block_of(one) for one in asked.get("blocks", ())],
    "prefixes": [
        session.neutralize_untrusted_inline_text(one) for one in asked.get("prefixes", ())
    ],
    "resets": [reason_of(its_store, one) for one in asked.get("resets", ())],
}
Path(sys.argv[2]).write_text(json.dumps(answers))
