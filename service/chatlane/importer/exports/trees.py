"""Conversations that are trees: each answer or edit that was made again is another branch. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class Node(NamedTuple):
    """A message of a tree; `fields` is None where a node has no message."""

    parent: str | None
    fields: Mapping[str, Any] | None
    at: datetime | None


def branch_to(nodes: Mapping[str, Node], tip: object) -> list[str]:
    """Return the ids from the root to a node; a circle ends it.

    Args:
        nodes: The messages, by id.
        tip: Id of the last message; if there is none with it, the newest message without a reply.
    """
    node_id = tip if isinstance(tip, str) and tip in nodes else _newest_leaf(nodes)
    found: dict[str, None] = {}
    while node_id is not None and node_id in nodes and node_id not in found:
        found[node_id] = None
        node_id = nodes[node_id].parent
    return list(found)[::-1]


def _newest_leaf(nodes: Mapping[str, Node]) -> str | None:
    parents = {node.parent for node in nodes.values()}
    leaves = [node_id for node_id in nodes if node_id not in parents]
    # Of equal ones, and of those without a time, the last in the file.
    dated = [(nodes[node_id].at, place) for place, node_id in enumerate(leaves)]
    known = [(at, place) for at, place in dated if at is not None]
    if known:
        return leaves[max(known)[1]]
    return leaves[-1] if leaves else None
