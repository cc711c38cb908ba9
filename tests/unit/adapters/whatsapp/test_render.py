"""What pieces become in WhatsApp."""

from chatlane_adapters.whatsapp.render import RENDERER, interactive
from chatlane_schemas import Button, TextFormat


def test_markdown_is_in_the_markup_of_whatsapp() -> None:
    assert RENDERER("**bold** ~~gone~~", TextFormat.MARKDOWN) == ("*bold* ~gone~",)


def test_three_short_buttons_are_buttons_and_more_are_a_menu() -> None:
    shown = interactive("Which?", [Button(label="Red", value="r"), Button(label="Blue")])
    assert shown is not None
    replies = [it["reply"] for it in shown["interactive"]["action"]["buttons"]]
    assert replies == [{"id": "r", "title": "Red"}, {"id": "Blue", "title": "Blue"}]
    menu = interactive("Which?", [Button(label=f"b{number}") for number in range(4)])
    assert menu is not None
    assert menu["interactive"]["type"] == "list"


def test_buttons_without_room_are_no_buttons() -> None:
    assert interactive("x" * 1025, [Button(label="a")]) is None
    assert interactive("x", [Button(label="a" * 25)]) is None
    assert interactive("x", [Button(label="a", url="https://a.test")]) is None
    assert interactive("x", [Button(label=f"b{number}") for number in range(11)]) is None
