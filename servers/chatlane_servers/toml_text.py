"""Write TOML; the standard library only reads it."""

import json
from collections.abc import Mapping


def toml_text(tables: Mapping[str, object]) -> str:
    """Return parsed TOML as TOML again, one top-level key per line."""
    return "".join(f"{_toml_string(key)} = {_toml_value(value)}\n" for key, value in tables.items())


def _toml_value(value: object) -> str:
    match value:
        case dict():
            pairs = (f"{_toml_string(key)} = {_toml_value(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(map(_toml_value, value))}]"
        case bool():
            return str(value).lower()
        case str():
            return _toml_string(value)
        case _:
            # Numbers, dates and times are written in TOML as in Python.
            return str(value)


def _toml_string(text: str) -> str:
    # TOML has no surrogate pairs, and JSON leaves DEL as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
