from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.search.tokens import (
    MAX_CHARACTERS,
    SNIPPET_CHARACTERS,
    agent_mark,
    any_mark,
    document,
    marks_of,
    owner_mark,
    search_of,
    session_mark,
    snippet,
)

SESSION = UUID(int=7)


def tsquery(query: str) -> str | None:
    search = search_of(query)
    return None if search is None else search.tsquery()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The quick fox", "'the':1 'quick':2 'fox':3"),
        ("deploy-v2.1, deploy!", "'deploy':1,4 'v2':2 '1':3"),
        ("Straße NAÏVE Ärger", "'strasse':1 'naive':2 'arger':3"),
        ("e\u0301cole ﬁn \uff46ull", "'ecole':1 'fin':2 'full':3"),
        ("Ωmega Йод", "'ωmega':1 'иод':2"),
        ("我喜欢你", "'我喜':1 '喜欢':2 '欢你':3 '你':4"),
        ("use 部署 now", "'use':1 '部署':2 '署':3 'now':4"),
        ("한국어", "'한국':1 '국어':2 '어':3"),
        ("ﾃｽﾄ", "'テス':1 'スト':2 'ト':3"),
        ("ดีมาก", "'ดี':1 'ีม':2 'มา':3 'าก':4 'ก':5"),
        ("done 🎉🎉", "'done':1 '🎉':2,3"),
    ],
)
def test_what_a_text_is_found_by(text: str, words: str) -> None:
    assert document(text) == words


@pytest.mark.parametrize("text", ["", " \n", "...", "-", "«»"])
def test_a_text_without_words_is_found_by_nothing(text: str) -> None:
    assert document(text, ["=s:1"]) is None


def test_a_row_has_marks_that_no_word_is_like() -> None:
    marks = marks_of(SESSION, "main", "telegram:bot:701")

    assert document("a", marks) == f"'a':1 '{marks[0]}' '{marks[1]}' '{marks[2]}'"
    assert marks == (session_mark(SESSION), agent_mark("main"), owner_mark("telegram:bot:701"))
    assert marks_of(SESSION, "main", None) == marks[:2]
    assert any_mark(["=b", "=a"]) == "('=a' | '=b')"
    assert tsquery("=s:1 =a*") == "('s' <1> '1') & ('a':*)"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Deploy service", "('deploy') & ('service')"),
        ('"to production" now', "('to' <1> 'production') & ('now')"),
        ('"never closed', "('never' <1> 'closed')"),
        ("example.com/a", "('example' <1> 'com' <1> 'a')"),
        ("dep*", "('dep':*)"),
        ("deploy -staging", "('deploy') & !('staging')"),
        ('deploy -"to staging"', "('deploy') & !('to' <1> 'staging')"),
        ("well-known", "('well' <1> 'known')"),
        ("喜欢你", "('喜欢' <1> '欢你')"),
        ("你", "('你':*)"),
        ('"部署 now"', "('部署' <2> 'now')"),
        ("don't", "('don' <1> 't')"),
        ("a & !b | (c)", "('a') & ('b') & ('c')"),
    ],
)
def test_how_a_query_is_read(query: str, expected: str) -> None:
    assert tsquery(query) == expected


@pytest.mark.parametrize("query", ["", "-", "...", "-no", '""', "* - *"])
def test_a_query_without_a_word_to_find_is_none(query: str) -> None:
    assert tsquery(query) is None


def test_a_query_has_a_bounded_number_of_words() -> None:
    assert (tsquery(" ".join(f"w{n}" for n in range(500))) or "").count("&") == 63


def test_a_snippet_is_around_the_first_word_that_was_looked_for() -> None:
    text = f"{'before ' * 50}\nhere it *Deploys*\tthings{' after' * 50}"
    search = search_of("deploys")
    assert search is not None

    shown = snippet(text, search)

    assert "before here it *Deploys* things after" in shown
    assert shown[0] == shown[-1] == "…"
    assert len(shown) <= SNIPPET_CHARACTERS + 2


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("short", "short", "short"),
        ("我喜欢你", "欢你", "我喜欢你"),
        ("deployment", "dep*", "deployment"),
        ("nothing of it", "else", "nothing of it"),
    ],
)
def test_a_short_text_is_its_own_snippet(text: str, query: str, shown: str) -> None:
    search = search_of(query)
    assert search is not None
    assert snippet(text, search) == shown


@given(st.text(max_size=200), st.text(max_size=30))
def test_any_text_and_any_query_are_read(text: str, query: str) -> None:
    found = document(text, ["=s:1"])
    assert found is None or found.endswith("'=s:1'")
    search = search_of(query)
    if search is not None:
        assert len(snippet(text, search)) <= SNIPPET_CHARACTERS + 2


def test_what_can_be_found_of_one_row_is_bounded() -> None:
    long = " ".join(f"w{n}" for n in range(100_000))

    found = document(long) or ""

    assert len(found) < 4 * MAX_CHARACTERS
    assert "'w100':101" in found
