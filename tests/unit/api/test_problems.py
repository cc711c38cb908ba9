"""What a caller is told about a body that is no request."""

import json

import pytest

from chatlane.api.problems import problem_text
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.session_api.session_changes import SessionUpdate

REQUEST = {
    "v": 1,
    "id": "r1",
    "at": "2026-03-01T12:00:00Z",
    "session_id": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01",
}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"session_id": "x"}, "session_id: must be a UUID"),
        ({"model": 7}, "model: must be text"),
        ({"clear": ["title"]}, "clear.0: is none of the values that the contract allows"),
        ({"v": 2}, "v: must be 1"),
        ({"at": "today"}, "at: must be a time with an offset, such as 2026-03-01T12:00:00Z"),
        (
            {"config": {"api_key": "canary"}},
            "config: holds a credential, which is not stored; pass a reference to it",
        ),
        (
            {"config": {}, "config_patch": {}},
            "the request: config and config_patch exclude each other",
        ),
        ({"cwd": "", "model": ""}, "cwd: is too short; model: is too short"),
    ],
)
def test_a_problem_names_the_field_and_what_it_wants(fields: dict[str, object], text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(SessionUpdate, json.dumps(REQUEST | fields).encode())
    assert problem_text(caught.value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 40 + b"]" * 40, "the body is nested deeper than 32"),
        (b" " * 300_000, "the body is too large: 300000 bytes, at most 262144"),
        (b"7", "the request: must be an object"),
        (b"{}", "id: is missing; at: is missing; session_id: is missing"),
    ],
)
def test_a_body_that_is_none_is_told_so(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(SessionUpdate, body)
    assert problem_text(caught.value) == text
