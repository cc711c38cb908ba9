"""Stage the pages of the documentation site: `python docs/site.py FOLDER`.

The pages are where readers of the repository look for them, in its root and beside what they
describe. mkdocs reads one folder and checks links within it. So this copies the pages, and every
other file that they link to, under the same paths.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("*.md", "docs/**/*.md", "examples/*.md", "schemas/*.md", "deploy/**/*.md")
_LINK: Final = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


def pages() -> list[Path]:
    """Return the pages of the site."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def linked_files(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    for link in _LINK.findall(page.read_text("utf-8")):
        target = (page.parent / link).resolve()
        if "://" not in link and target.is_file() and target.is_relative_to(ROOT):
            yield target


def stage(folder: Path) -> None:
    """Copy the pages and their files into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in {*pages(), *(file for page in pages() for file in linked_files(page))}:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
