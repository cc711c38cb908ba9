"""Whose session it is, and under which ids a person is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.addressing.alias_rows import AliasId, AliasKind
from chatlane.domain.addressing.owners import alias_of, owner_of, owner_text, parse_owner_text
from chatlane_schemas.session_api.people import Person

NAMES = st.text(min_size=1)


@given(
    st.tuples(NAMES, NAMES, st.none() | NAMES, NAMES),
    st.tuples(NAMES, NAMES, st.none() | NAMES, NAMES),
)
def test_two_people_never_have_one_text(
    first: tuple[str, str, str | None, str], second: tuple[str, str, str | None, str]
) -> None:
    assert (owner_text(*first) == owner_text(*second)) == (first == second)


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("agent:main:slack:bot:dm:D1:scope=T1", "slack:bot:U1:T1"),
        ("agent:main:telegram:bot:dm:701", "telegram:bot:U1"),
        ("agent:main:telegram:bot:group:-90:user=U1", "telegram:bot:U1"),
        ("agent:main:telegram:bot:group:-90", None),
        ("agent:main:telegram:bot:group:-90:thread=7", None),
        ("agent:main:telegram:bot:group:-90:user=777000", None),
        ("agent:main:custom:bot:dm:", None),
    ],
)
def test_a_session_is_of_the_one_person_who_can_write_in_it(key: str, owner: str | None) -> None:
    assert owner_of(key, "U1") == owner


def test_without_an_id_it_is_nobodys() -> None:
    assert owner_of("agent:main:telegram:bot:dm:701", None) is None


@given(st.tuples(NAMES, NAMES, st.none() | NAMES, NAMES))
def test_an_owner_is_read_back(parts: tuple[str, str, str | None, str]) -> None:
    assert parse_owner_text(owner_text(*parts)) == parts


def test_an_id_is_looked_up_in_its_normal_form() -> None:
    person = Person(platform="whatsapp", account="bot", id="4930123:5@s.whatsapp.net")
    assert alias_of(person) == AliasId("whatsapp", "bot", AliasKind.PERSON, "4930123")


def test_what_is_no_id_of_a_person_is_not_looked_up() -> None:
    assert alias_of(Person(platform="whatsapp", account="bot", id="group@g.us")) is None
