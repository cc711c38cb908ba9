"""Settings of the bridge, the files of the examples, and kinds of permissions."""

import json
from pathlib import Path
from typing import Final

import pytest
from pydantic import ValidationError

from chatlane_bridges.acp.questions import permission_kind
from chatlane_bridges.acp.settings import EditorOptions, EditorSettings, read_options
from chatlane_schemas import Button

EXAMPLES: Final = Path(__file__).parents[4] / "examples" / "editors"


def test_the_options_of_the_examples_are_valid() -> None:
    offered = read_options(EXAMPLES / "options.toml")
    assert [model.id for model in offered.models] == ["small-1", "large-1"]
    assert [option.default for option in offered.options] == ["low", True]
    assert read_options(None) == EditorOptions()


@pytest.mark.parametrize("name", ["zed.json", "jetbrains.json"])
def test_the_files_of_editors_start_the_bridge(name: str) -> None:
    [server] = json.loads((EXAMPLES / name).read_text("utf-8"))["agent_servers"].values()
    assert [server["command"], *server["args"]][:2] == ["chatlane", "acp"]


@pytest.mark.parametrize(
    "text",
    [
        'models = [{ id = "a" }, { id = "a" }]',
        'options = [{ id = "model", default = true }]',
        'options = [{ id = "a", values = [{ id = "b" }], default = "c" }]',
        'options = [{ id = "a", default = "c" }]',
        "unknown = 1",
        "no toml",
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"."):
        read_options(path)


def test_the_person_is_found_at_the_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ACP_PRINCIPAL", "ann-editor")
    monkeypatch.setenv("CHATLANE_ACP_PERSON", "ann")
    person = EditorSettings().acting_for
    assert (person.platform, person.account, person.id) == ("acp", "ann-editor", "ann")
    elsewhere = EditorSettings(platform="telegram", account="assistant", person="7").acting_for
    assert (elsewhere.platform, elsewhere.account, elsewhere.id) == ("telegram", "assistant", "7")
    with pytest.raises(ValidationError):
        EditorSettings(principal="Not A Name")


@pytest.mark.parametrize(
    ("label", "value", "kind"),
    [
        ("Allow", "allow", "allow_once"),
        ("Yes, always", None, "allow_always"),
        ("Sure", "allow_always", "allow_always"),
        ("No", "n", "reject_once"),
        ("Don't allow", None, "reject_once"),
        ("Never", None, "reject_always"),
        ("Later", "later", "reject_once"),
    ],
)
def test_the_words_of_an_option_say_what_it_does(label: str, value: str | None, kind: str) -> None:
    assert permission_kind(Button(label=label, value=value), "later") == kind
