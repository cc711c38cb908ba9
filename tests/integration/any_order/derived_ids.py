"""Messages that nobody sent as they are: what runs again, and files that came too late."""

from collections import Counter
from dataclasses import replace
from typing import Final
from uuid import UUID

from tests.integration.any_order.people import Said, Story
from tests.integration.any_order.rules.steps import Step
from tests.integration.any_order.snapshot import Row, Waiting

_ASKED_BY: Final = "retry"


def note_retries(step: Step, story: Story) -> None:
    """Give new ids to what was taken back in this step and is said again in the same session.

    Each of it is said again once at most; whatever else has an unknown id was made up.
    """
    is_retried = any(name == _ASKED_BY for _, name, _ in step.decided.commands)
    if not (is_retried or (step.asked is not None and step.asked.kind == _ASKED_BY)):
        return
    known = {(row.session_id, row.seq) for row in step.before.archive}
    taken_back = [row for row in step.after.archive if (row.session_id, row.seq) not in known]
    originals = {_name(row): row for row in reversed(taken_back)}
    again = [one for one in _messages(step) if one.id is not None and one.id not in story.by_id]
    counts = Counter(_name(one) for one in again if one not in taken_back)
    for one in again:
        original = originals.get(_name(one))
        if original is not None and counts[_name(one)] <= 1 and one.id is not None:
            story.repeat(_said(original, story), one.id)


def note_late_files(step: Step, story: Story) -> None:
    """Note files that are a message by themselves, for that which they belong to has run."""
    there = {one.id for one in _messages(step)}
    for mid, (by_itself, order) in step.decided.files.items():
        if by_itself in there and by_itself not in story.by_id:
            first = story.by_mid[mid]
            late = replace(first, mid=f"files of {mid}", id=by_itself, order=order, is_copy=True)
            story.by_id[by_itself] = late


def _messages(step: Step) -> list[Waiting | Row]:
    return [*step.after.waiting, *step.after.rows, *step.after.archive]


def _name(one: Waiting | Row) -> tuple[UUID, str | None]:
    # What a request said has no id of a platform, and is never edited.
    return one.session_id, one.mid or one.content


def _said(original: Row, story: Story) -> Said:
    said = story.by_id.get(original.id) if original.id else None
    if said is not None:
        return said
    first = story.by_mid.get(original.mid or "")
    if first is None:
        return Said(str(original.content), None, original.content, is_copy=True)
    return replace(first, is_copy=True)
