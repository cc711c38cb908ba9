"""Requests about what a list of sessions shows: pins, labels, read-only sessions, worktrees."""

from typing import Annotated

from pydantic import AfterValidator, Field

from chatlane_schemas.fields import Flag
from chatlane_schemas.session_api.session_changes import SessionChange, SettingChange
from chatlane_schemas.session_api.session_marks import MAX_LABELS, Label, Worktree
from chatlane_schemas.session_api.session_state import without_credential


def _each_once(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))


def _without_credentials(tree: Worktree) -> Worktree:
    for value in (tree.path, tree.branch, tree.repository):
        if value is not None:
            without_credential(value)
    return tree


class SessionPin(SessionChange):
    """Pins a session or unpins it; its place in the order of activity stays."""

    pinned: Flag = Field(default=True, description="Whether to pin the session or unpin it.")


class SessionLabel(SettingChange):
    """Replaces all labels of a session."""

    labels: Annotated[
        tuple[Label, ...], Field(max_length=MAX_LABELS), AfterValidator(_each_once)
    ] = Field(default=(), description="The labels; each counts once.")


class SessionProtect(SessionChange):
    """Makes an ended session read only, or takes that back.

    A read-only session cannot be reopened, and no lane can be pointed to it. A copy of it is not read
    only. Refused as `conflict` for a session that has not ended.
    """

    read_only: Flag = Field(default=True, description="Whether the session is read only.")


class SessionTree(SettingChange):
    """Notes the working copy of a repository that was made for a session, or forgets it.

    The caller that made the copy owns its files.
    """

    worktree: Annotated[Worktree, AfterValidator(_without_credentials)] | None = Field(
        default=None, description="The working copy; none forgets it."
    )
