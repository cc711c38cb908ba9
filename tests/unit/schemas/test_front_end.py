"""What the front end of a person may give to an agent."""

import pytest
from pydantic import ValidationError

from chatlane_schemas.content.front_end import LARGEST_STATE, FrontEnd, FrontEndCall

ROOM = LARGEST_STATE - len('{"a":""}')


def test_a_front_end_may_share_a_state() -> None:
    assert FrontEnd().shared_state() == {}
    assert FrontEnd(state='{"a":[1]}').shared_state() == {"a": [1]}
    assert "state" not in FrontEnd().model_dump_json()


@pytest.mark.parametrize("state", ["", "[]", "null", '{"a"', f'{{"a":"{"ü" * (ROOM // 2)}x"}}'])
def test_a_state_is_a_json_object_of_a_bounded_size(state: str) -> None:
    with pytest.raises(ValidationError):
        FrontEnd(state=state)
    with pytest.raises(ValidationError):
        FrontEndCall(id="0" * 32, name="state", arguments=state, is_state=True)


def test_the_largest_state_is_taken() -> None:
    state = f'{{"a":"{"ü" * (ROOM // 2)}"}}'
    assert FrontEnd(state=state).shared_state()["a"] == "ü" * (ROOM // 2)
    call = FrontEndCall(id="0" * 32, name="state", arguments=state, is_state=True)
    assert FrontEndCall.model_validate_json(call.model_dump_json()) == call


def test_a_call_of_a_tool_reads_as_before() -> None:
    assert "is_state" not in FrontEndCall(id="0" * 32, name="set_colour").model_dump_json()
