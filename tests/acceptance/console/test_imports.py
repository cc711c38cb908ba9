"""A person imports files of other programs in a browser."""

import json
import zipfile
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.console.conftest import OpenWindow
from tests.acceptance.console.test_walk import violations
from tests.integration.console.test_imports import trip

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


def export(directory: Path, conversations: int) -> Path:
    """Write an archive as ChatGPT exports it, larger than one piece of a stream."""
    odd = 'a "quoted" {brace} and a \\ at the end\\'
    trips = [
        trip(f"Where to in {number}?", odd, "x" * 2000)
        | {"id": f"c-{number}", "title": f"Trip {number}"}
        for number in range(conversations)
    ]
    path = directory / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", json.dumps({"email": "ann@example.org"}))
        archive.writestr("conversations.json", json.dumps([*trips, {"of": "another program"}]))
    return path


@pytest.mark.slow
async def test_a_person_imports_files_and_finds_the_conversations(
    window: OpenWindow, tmp_path: Path
) -> None:
    archive = export(tmp_path, 40)
    lines = tmp_path / "4f1f6a4e-0000-4000-8000-000000000001.jsonl"
    said = {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Mend the roof"}}
    lines.write_text(json.dumps(said) + "\n")
    async with window("person-51") as ann:
        await ann.open("#/list")
        await ann.page.get_by_role("link", name="Import").click()
        await ann.page.locator("input[type=file]").set_input_files([archive, lines])
        report = ann.page.get_by_role("region", name="Progress")
        await expect(report).to_contain_text("The import is finished.")
        await expect(report).to_contain_text("41 conversations new")
        await expect(report).to_contain_text("121 messages")
        await expect(report).to_contain_text("conversation: of no program that is known")
        assert await report.get_by_role("progressbar").evaluate("bar => bar.value") == 1
        assert await violations(ann) == []

        await ann.page.locator("input[type=file]").set_input_files(archive)
        await expect(report).to_contain_text("40 conversations unchanged")

        entries = ann.page.locator(".entry")
        await expect(entries).to_have_count(41)
        await entries.filter(has_text="Trip 7").click()
        await ann.until_row('a "quoted" {brace} and a \\ at the end\\')
        assert ann.errors == []
