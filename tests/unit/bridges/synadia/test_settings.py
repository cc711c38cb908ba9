"""A worker starts only with settings that keep conversations apart."""

from typing import Any

import pytest
from pydantic import ValidationError

from chatlane_bridges.synadia.settings import WorkerSettings

HOST: dict[str, Any] = {"agent": "main", "host": "cc", "owner": "ann"}


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"session": "chat-{session}"},
        {"session": "desk", "session_key": "key"},
        {"session": "desk", "forgets": True},
    ],
)
def test_each_conversation_has_a_session_of_the_agent(chosen: dict[str, Any]) -> None:
    assert WorkerSettings(**HOST, **chosen).agent == "main"


@pytest.mark.parametrize(
    "chosen",
    [
        {"session": "desk"},
        {"forgets": True},
        {"session_key": "key"},
        {"session": "desk", "session_key": "key", "forgets": True},
    ],
)
def test_conversations_are_not_mixed(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="another"):
        WorkerSettings(**HOST, **chosen)
