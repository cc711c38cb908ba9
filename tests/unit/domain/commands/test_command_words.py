"""What is a command and what is plain text; who may give which."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.catalog import own_mention
from chatlane.domain.commands.command_words import (
    PASSED_ON,
    Command,
    CommandName,
    CommandRules,
    parse_command,
)
from chatlane_schemas.content.visible_text import visible

RULES = CommandRules()
OURS = "our_bot"
WORDS = (*CommandName, "reset")


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", CommandName.NEW, ""),
        ("/NEW", CommandName.NEW, ""),
        ("/reset", CommandName.NEW, ""),
        ("/new@our_bot", CommandName.NEW, ""),
        ("/NEW@Our_Bot", CommandName.NEW, ""),
        ("/title plan for June", CommandName.TITLE, "plan for June"),
        ("/title@our_bot\tplan", CommandName.TITLE, "plan"),
        ("/title   plan  ", CommandName.TITLE, "plan"),
    ],
)
def test_commands(text: str, name: CommandName, argument: str) -> None:
    assert parse_command(text, RULES, OURS) == Command(name, argument)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "/",
        "//new",
        "/ new",
        " /new",
        "new",
        "/etc/hosts looks wrong",
        "/README.md please",
        "/new/file.txt",
        "/new.",
        "/newer",
        "/new-york",
        "/new@",
        "/new@our_bot@other_bot",
        "/new@our_bot/x",
        "/frobnicate",
        "/frobnicate@our_bot",
        "/frobnicate@somebody",
        "say /new",
        "/neẃ",
        "/\N{LATIN SMALL LETTER LONG S}tatus",
    ],
)
def test_plain_text(text: str | None) -> None:
    assert parse_command(text, RULES, OURS) is None


@pytest.mark.parametrize("text", ["/new@other_bot", "/NEW@OTHER", "/weather@weather_bot Berlin"])
def test_what_is_said_to_another_bot_is_neither(text: str) -> None:
    assert parse_command(text, RULES, OURS) == Command(None)


def test_who_has_no_name_is_not_meant_by_any() -> None:
    assert parse_command("/new@our_bot", RULES, None) == Command(None)
    assert parse_command("/weather@weather_bot", RULES, None) is None


def test_a_platform_may_have_a_prefix_of_its_own() -> None:
    rules = CommandRules(prefix="!!")
    assert parse_command("!!new", rules, OURS) == Command(CommandName.NEW)
    assert parse_command("/new", rules, OURS) is None
    assert parse_command("!new", rules, OURS) is None


def test_what_is_switched_off_is_text_but_not_when_another_bot_is_meant() -> None:
    rules = CommandRules(off=frozenset({CommandName.NEW}))
    assert parse_command("/new", rules, OURS) is None
    assert parse_command("/reset", rules, OURS) is None
    assert parse_command("/new@other_bot", rules, OURS) == Command(None)


def swapped(text: str, flips: list[bool]) -> str:
    return "".join(
        one.upper() if flip else one for one, flip in zip(text, flips * len(text), strict=False)
    )


@given(
    word=st.sampled_from(WORDS),
    flips=st.lists(st.booleans(), min_size=1, max_size=8),
    suffix=st.sampled_from(["", "@our_bot", "@OUR_bot"]),
    space=st.sampled_from([" ", "\n", "\t", "  "]),
    argument=st.text(max_size=40).map(str.strip),
)
def test_a_known_word_is_a_command_with_all_that_follows(
    word: str, flips: list[bool], suffix: str, space: str, argument: str
) -> None:
    found = parse_command(f"/{swapped(word, flips)}{suffix}{space}{argument}", RULES, OURS)
    name = CommandName.NEW if word == "reset" else CommandName(word)
    assert found is not None
    assert found.name is name
    line, *rest = f"{space}{argument} ".splitlines(keepends=True)
    if name in PASSED_ON:
        assert (found.argument, found.rest) == ((visible(line) + "".join(rest)).strip(), "")
    else:
        assert (found.argument, found.rest) == (visible(line).strip(), "".join(rest).strip())


@pytest.mark.parametrize(
    ("text", "argument", "rest"),
    [
        ("/new\nand then tell me a joke", "", "and then tell me a joke"),
        ("/new trip to Rome\r\nfind a flight", "trip to Rome", "find a flight"),
        ("/stop \n\n no, the other file\n  line two", "", "no, the other file\n  line two"),
        ("/undo 2\u2028again", "2", "again"),
        ("/status\n \n", "", ""),
        ("/new\n/title x", "", "/title x"),
    ],
)
def test_f07_a_command_ends_with_its_line(text: str, argument: str, rest: str) -> None:
    found = parse_command(text, RULES, OURS)
    assert found is not None
    assert (found.argument, found.rest) == (argument, rest)
    assert found.message == rest


@pytest.mark.parametrize("word", ["queue", "steer"])
def test_f07_what_is_passed_on_may_have_several_lines(word: str) -> None:
    found = parse_command(f"/{word} fix these:\n- a\n- b", RULES, OURS)
    assert found == Command(CommandName(word), "fix these:\n- a\n- b")
    assert found.message == "fix these:\n- a\n- b"


MENTIONED = own_mention(OURS, {"@bot:example.org", "4915550:12@s.whatsapp.net", "U0AB"})


@pytest.mark.parametrize(
    "mention",
    [
        "@our_bot ",
        "@Our_Bot, ",
        "@our_bot\n",
        "our_bot: ",
        "<@U0AB> ",
        "<@U0AB>",
        "<@!U0AB> ",
        "<@U0AB|our bot> ",
        "<users/U0AB> ",
        "<at>our_bot</at> ",
        '<at id="0">our_bot</at> ',
        "@**our_bot** ",
        "@**our_bot|12** ",
        "@bot:example.org: ",
        "@4915550 ",
        "@\u2068our_bot\u2069 ",
        "@our_bot @our_bot ",
    ],
)
def test_f07_a_leading_mention_of_ours_is_cut(mention: str) -> None:
    found = parse_command(f"{mention}/new plan\nhello", RULES, OURS, MENTIONED)
    assert found == Command(CommandName.NEW, "plan", "hello")
    assert parse_command(f"{mention}hello", RULES, OURS, MENTIONED) is None


@pytest.mark.parametrize(
    "mention",
    ["@other_bot ", "@our_bot_2 ", "@our_bot", "our_bot ", "<@U0ABC> ", "<@&U0AB> ", "@ our_bot "],
)
def test_f07_a_mention_of_others_makes_no_command(mention: str) -> None:
    assert parse_command(f"{mention}/new", RULES, OURS, MENTIONED) is None


def test_f07_an_account_without_names_is_not_mentioned() -> None:
    assert own_mention(None, ()) is None
    assert own_mention("", {""}) is None
    assert parse_command("@our_bot /new", RULES, OURS) is None


@given(st.text(max_size=60))
def test_without_the_prefix_nothing_is_a_command(text: str) -> None:
    if not text.startswith("/"):
        assert parse_command(text, RULES, OURS) is None


@given(st.sampled_from(WORDS), st.text(min_size=1, max_size=20))
def test_a_word_that_goes_on_is_text(word: str, rest: str) -> None:
    found = parse_command(f"/{word}{rest}", RULES, OURS)
    seen = visible(f"/{word}{rest}").removeprefix(f"/{word}").lstrip("\u2800")
    seen = "".join(sign for sign in seen if unicodedata.category(sign) != "Cc" or sign.isspace())
    if seen and not seen[0].isspace() and not seen.startswith("@"):
        assert found is None or found.name is not CommandName(word if word != "reset" else "new")


@given(st.text(max_size=40), st.sampled_from([None, "our_bot"]))
def test_any_text_is_parsed(text: str, bot_name: str | None) -> None:
    found = parse_command("/" + text, RULES, bot_name)
    assert found is None or found.name is None or found.name in CommandName


def test_everybody_may_use_what_is_not_named() -> None:
    assert all(RULES.permits(name, "dm", {"1"}) for name in CommandName)


def test_a_command_may_be_for_some_only() -> None:
    rules = CommandRules(access={"new": frozenset({"1"})})
    assert rules.permits(CommandName.NEW, "dm", {"1", "x"})
    assert not rules.permits(CommandName.NEW, "dm", {"2"})
    assert rules.permits(CommandName.TITLE, "dm", {"2"})


def test_the_default_is_for_what_is_not_named_and_never_for_help() -> None:
    rules = CommandRules(access={"default": frozenset({"1"}), "status": frozenset({"*"})})
    assert not rules.permits(CommandName.NEW, "dm", {"2"})
    assert rules.permits(CommandName.STATUS, "dm", set())
    assert rules.permits(CommandName.HELP, "dm", {"2"})


def test_groups_have_a_list_of_their_own() -> None:
    rules = CommandRules(access={"new": frozenset({"1"})}, group_access={})
    assert rules.permits(CommandName.NEW, "group", {"2"})
    assert not rules.permits(CommandName.NEW, "dm", {"2"})
    nobody = CommandRules(group_access={"default": frozenset()})
    assert not nobody.permits(CommandName.NEW, "group", {"1"})
    assert nobody.permits(CommandName.NEW, "dm", {"1"})


@pytest.mark.parametrize("name", [CommandName.STOP, CommandName.NEW, CommandName.STATUS])
@pytest.mark.parametrize(
    "form",
    [
        "\u2060/{}\u2060",
        "\u200f/{}",
        "\ufeff/{}",
        "/{}\u200b",
        "\uff0f{}",
        "\u200e\uff0f{}\u200f",
        "/\u200b{}",
        "\u2066/{}\u2069",
        "@our_bot \u2060/{}",
        "@our_bot \uff0f{}",
        "/{}\u00a0\u061c",
        "\uff0f{}\u3000",
        "\U000e0041/{}\U000e007f",
        "/{}@our_bot\ufe0f",
        "/{}\u2800",
        "/{}\x07",
        "\x1b/\x7f{}\x9f",
    ],
)
def test_c80_a_command_is_what_the_eye_sees(name: CommandName, form: str) -> None:
    mention = own_mention(OURS, frozenset())
    assert parse_command(form.format(name), RULES, OURS, mention) == Command(name)
    split = form.format(f"{name[:2]}\u200b{name[2:]}")
    assert parse_command(split, RULES, OURS, mention) == Command(name)


@pytest.mark.parametrize(
    ("text", "prefix", "command"),
    [
        ("\uff0f\uff53\uff54\uff4f\uff50", "/", Command(CommandName.STOP)),
        (
            "\uff0f\uff2e\uff25\uff37\u3000\uff21\uff22",
            "/",
            Command(CommandName.NEW, "\uff21\uff22"),
        ),
        ("/\uff4e\uff45\uff57\uff20our_bot", "/", Command(CommandName.NEW)),
        ("\uff01stop", "!", Command(CommandName.STOP)),
        ("/\u200b\U0001d42c\U0001d42d\U0001d428\U0001d429", "/", Command(CommandName.STOP)),
    ],
)
def test_c80_a_command_of_a_wide_keyboard_is_one(text: str, prefix: str, command: Command) -> None:
    assert parse_command(text, CommandRules(prefix=prefix), OURS) == command


@pytest.mark.parametrize(
    "text", ["\u2215new", "\u2044stop", "é/new", "\u200b x /new", "\u0130/stop", "😀 /new"]
)
def test_c80_what_looks_different_is_plain_text(text: str) -> None:
    assert parse_command(text, RULES, OURS) is None


def test_c80_the_words_behind_a_command_stay_as_they_are() -> None:
    family = "\U0001f469\u200d\U0001f467"
    assert parse_command(f"\u200b/queue {family} ok", RULES, OURS) == Command(
        CommandName.QUEUE, f"{family} ok"
    )
    assert parse_command(f"\u200b/new\n\u2060{family}", RULES, OURS) == Command(
        CommandName.NEW, "", f"\u2060{family}"
    )
