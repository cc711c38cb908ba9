"""Markdown of agents in the form of a platform: parse, split, render.

`Renderer` does all of it. A platform has a `render` of a part, or a table of marks (`Dialect`).
"""

from chatlane_adapters.kit.markdown.dialects import DISCORD, SLACK, WHATSAPP, Dialect, in_dialect
from chatlane_adapters.kit.markdown.document import Document
from chatlane_adapters.kit.markdown.entities import Entity, EntityKind, EntityText, with_entities
from chatlane_adapters.kit.markdown.html import as_html
from chatlane_adapters.kit.markdown.parser import literal, parse
from chatlane_adapters.kit.markdown.parts import split
from chatlane_adapters.kit.markdown.renderer import Renderer

__all__ = [
    "DISCORD",
    "SLACK",
    "WHATSAPP",
    "Dialect",
    "Document",
    "Entity",
    "EntityKind",
    "EntityText",
    "Renderer",
    "as_html",
    "in_dialect",
    "literal",
    "parse",
    "split",
    "with_entities",
]
