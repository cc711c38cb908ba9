"""An adapter cannot publish where no router reads."""

import pytest
from nats.aio.client import Client
from pydantic import ValidationError

from chatlane_client import AdapterClient
from chatlane_schemas import InboundEvent
from chatlane_schemas.topology import subjects
from tests.support.service.load_users import Person

# A subject with any of these tokens is stored, but in no partition or where no filter finds it.
NOWHERE = ["", "*", ">", "a.b", "a*", "a\x7fb", "a b", "a\0b", "ä", "a" * 65]


@pytest.mark.parametrize("name", NOWHERE)
def test_a_name_that_would_lead_nowhere_is_refused_at_once(name: str) -> None:
    for platform, account in ((name, "bot"), ("test", name)):
        with pytest.raises(subjects.SubjectError, match="not a declared name"):
            AdapterClient(Client(), platform=platform, account=account)


@pytest.mark.parametrize("name", NOWHERE)
def test_neither_can_an_event_have_one(name: str) -> None:
    fields = Person("ann").event("hello", "1").model_dump(mode="json")
    for field in ("platform", "account"):
        with pytest.raises(ValidationError):
            InboundEvent.model_validate({**fields, field: name})


@pytest.mark.parametrize("chat", NOWHERE[1:])
def test_a_chat_never_stands_in_a_subject_as_it_is(chat: str) -> None:
    token = subjects.chat_token(chat)
    assert len(token) == subjects.CHAT_TOKEN_DIGITS
    assert set(token) <= set("0123456789abcdef")
