"""Files that a caller sends along with a prompt."""

import pytest
from synadia_ai.agent_service import RequestRejectedError
from synadia_ai.agents import Attachment

from chatlane_bridges.synadia.offered_agent import decoded


def test_a_file_has_the_content_that_was_sent() -> None:
    assert decoded(Attachment.from_bytes("a.bin", b"\x00\xff")) == b"\x00\xff"


@pytest.mark.parametrize("content", ["abc", "ö" * 4, "a\u0000bc====="])
def test_what_is_no_base64_is_the_fault_of_the_caller(content: str) -> None:
    with pytest.raises(RequestRejectedError) as refused:
        decoded(Attachment(filename="a.bin", content=content))
    assert refused.value.code == 400
