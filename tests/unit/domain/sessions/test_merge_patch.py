"""The examples of RFC 7396, as far as a patch is an object."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.requests.session_changes import merge_patch

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
        ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
        ('{"a":"b"}', '{"a":null}', "{}"),
        ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
        ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
        ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
        ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
        ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
        ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
        ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
        ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
    ],
)
def test_a_patch_is_applied_as_the_rfc_says(target: str, patch: str, merged: str) -> None:
    assert merge_patch(json.loads(target), json.loads(patch)) == json.loads(merged)


@given(OBJECTS, OBJECTS)
def test_a_patch_changes_neither_of_its_arguments_and_counts_once(
    target: dict[str, object], patch: dict[str, object]
) -> None:
    before = json.dumps([target, patch])

    merged = merge_patch(target, patch)  # type: ignore[arg-type]

    assert json.dumps([target, patch]) == before
    assert merge_patch(merged, patch) == merged  # type: ignore[arg-type]
    assert {key for key, value in patch.items() if value is None}.isdisjoint(merged)
