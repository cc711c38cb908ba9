"""Hold notes for agents on single platforms."""

from __future__ import annotations

from typing import Final

# Platforms where the id of a person is a phone number or address and mentions do not use it.
PRIVATE_IDS: Final = frozenset(
    {
        "bluebubbles",
        "email",
        "ntfy",
        "photon",
        "signal",
        "simplex",
        "sms",
        "telegram",
        "whatsapp",
        "whatsapp_cloud",
    }
)

# Left out where agents have tools for the platform.
WITHOUT_TOOLS: Final = {
    "slack": (
        "You are in Slack, without tools for it: you can neither search the history of a channel "
        "nor pin messages, manage channels or list people. Do not promise any of this."
    ),
    "discord": (
        "You are in Discord, without tools for it: you can neither search the history of a "
        "channel nor pin messages, manage roles or list members. Do not promise any of this; say "
        "that you read what is written to you and answer it."
    ),
}

ALWAYS: Final = {
    "bluebubbles": (
        "Your answers are iMessages: short and conversational, texts rather than essays. Each "
        "paragraph becomes a bubble of its own, so keep one thought of one to three sentences in "
        "each, with a blank line between them. Give the short version of a long answer first and "
        "offer the rest."
    ),
    "yuanbao": (
        "You are in Yuanbao: your answer goes to the group it was asked in. To write to one of "
        "its members in private, use the tool `yb_send_dm` with their name or id."
    ),
}
