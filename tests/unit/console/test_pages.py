"""The files of the console's pages: small, complete, and from no other server."""

import re
from gzip import compress
from pathlib import Path
from typing import Final

import chatlane_console

PAGES: Final = Path(chatlane_console.__file__).with_name("pages")
MAX_SENT_BYTES: Final = 150 * 1000
SCRIPTS: Final = sorted(PAGES.rglob("*.js"))
_IMPORT: Final = re.compile(
    r"""^(?:import|export)\b[^;]*?\bfrom\s*["']([^"']+)["']""", re.MULTILINE
)
_ADDRESS: Final = re.compile(r"""(?:src|href|url|import|from)\s*[=(]?\s*["'(]?\s*(?:https?:)?//""")


def test_all_scripts_together_are_small() -> None:
    assert SCRIPTS
    assert sum(len(compress(script.read_bytes())) for script in SCRIPTS) <= MAX_SENT_BYTES


def test_every_import_leads_to_a_file_of_the_pages() -> None:
    for script in SCRIPTS:
        for target in _IMPORT.findall(script.read_text("utf-8")):
            assert target.startswith("."), (script.name, target)
            assert (script.parent / target).resolve().is_file(), (script.name, target)


def test_every_file_that_the_page_names_is_there() -> None:
    text = (PAGES / "index.html").read_text("utf-8")
    for target in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert (PAGES / target.removeprefix("/")).is_file(), target


def test_the_page_names_the_scripts_that_it_needs_first() -> None:
    """A browser loads them at once then, and not one after the other as it finds the imports."""
    needed: set[Path] = set()
    found = [PAGES / "app.js"]
    while found:
        script = found.pop()
        if script not in needed:
            needed.add(script)
            targets = _IMPORT.findall(script.read_text("utf-8"))
            found += [(script.parent / target).resolve() for target in targets]
    text = (PAGES / "index.html").read_text("utf-8")
    named = re.findall(r'<link rel="modulepreload" href="/([^"]+)"', text)
    assert sorted(PAGES / name for name in named) == sorted(needed - {PAGES / "app.js"})


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    text = (PAGES / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", text) == []


def test_nothing_comes_from_another_server() -> None:
    for path in PAGES.rglob("*"):
        if path.suffix in {".html", ".css", ".svg"} or (
            path.suffix == ".js" and "vendor" not in path.parts
        ):
            text = path.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
            assert _ADDRESS.findall(text) == [], path.name


def test_no_text_becomes_html_in_our_scripts() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    )
    for script in SCRIPTS:
        if "vendor" not in script.parts:
            assert forbidden.findall(script.read_text("utf-8")) == [], script.name


def test_the_libraries_come_with_their_licences() -> None:
    text = (PAGES / "vendor/LICENSES.txt").read_text("utf-8")
    for name in ("preact", "htm", "@preact/signals-core", "marked"):
        assert re.search(rf"^{re.escape(name)} \d", text, re.MULTILINE), name
