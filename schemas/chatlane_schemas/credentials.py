"""Detect credentials in JSON values that the service stores unchanged.

A credential is detected by the name of its field, by the form of the text that carries it (a
header, an assignment, a URL) or by its own form. Secrets without any of these look like other text
and are not detected. Text that only mentions a credential, such as a prompt that says "bearer
token", is allowed.
"""

import re
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from pydantic import JsonValue
from pydantic_core import from_json

# Matches the end of a name that was split at every change of case and every separator.
_NAME: Final = re.compile(
    r"(?:token|passwords?|passwd|passphrase|secrets?|credentials?|authorization|cookies?|"
    r"(?:access|auth|bearer|refresh|client)_?tokens|"
    r"(?:api|access|private|secret|signing|encryption|auth|ssh)_?keys?|"
    r"(?:^|_)(?:bearer|pwd|passcode|creds)|"
    r"(?:^|_)(?:db|smtp|mail|user|http|proxy|admin|root|pg|mysql|redis)_?pass)_?\d*$"
)
_WORD_ENDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_WHOLE_NAME: Final = re.compile(r"[\w .-]{1,100}")
# Members of an object that holds one name and its value, as in the headers of MCP servers.
# Their last words count: `headerName` is a `name`.
_NAMING: Final = frozenset(
    {"name", "key", "header", "field", "variable", "var", "env", "param", "option", "id", "k"}
    | {"property", "label"}
)
_VALUED: Final = frozenset({"value", "values", "val", "content", "secret", "default", "v"})

# Each of these patterns looks at each character a bounded number of times.
_AUTHORIZATION: Final = re.compile(
    r"(?i)\s*(?P<scheme>bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)"
    r"\s+(?P<value>[^\s,]+).*",
    re.DOTALL,
)
_AUTHORIZATION_WITHIN: Final = re.compile(
    r"(?i)\b(?:bearer|basic)\s{1,8}(?=[\w.~+/-]{0,400}\d)(?P<value>[\w.~+/-]{16,400})"
)
_LINE: Final = re.compile(
    r"""^[ \t"'>*-]{0,16}(?:export\s|set\s)?(?P<name>[A-Za-z_][\w.-]{0,200})["']?[ \t]{0,8}:"""
    r"""(?P<value>.+)""",
    re.MULTILINE,
)
_HEADER_WITHIN: Final = re.compile(
    r"(?i)(?<![\w-])(?P<name>authorization|cookie|[a-z]{1,20}(?:-[a-z]{1,20}){1,6})"
    r":[ \t]{0,8}(?P<value>[^\s\"',;]+(?:[ \t][^\s\"',;]+)?)"
)
_MEMBER_WITHIN: Final = re.compile(
    r"""["'](?P<name>[\w.-]{1,200})["']\s{0,8}:\s{0,8}["'](?P<value>[^"']+)["']"""
)
_ASSIGNED: Final = re.compile(
    r"""(?<![\w.-])-{0,2}(?P<name>[A-Za-z_][\w.-]{0,200})["']?\s?=\s?["']?"""
    r"""(?P<value>[^\s"'&;,=][^\s"'&;,]*)"""
)
_IN_QUERY: Final = re.compile(
    r"(?i)[?&](?:key|sig|auth|code|[a-z-]{0,40}signature)=(?P<value>[^&#\s]{16,})"
)
_USER_OF_URL: Final = re.compile(
    r"(?i)\b[a-z][a-z0-9+.-]{0,20}://"
    r"(?:[^\s/?#@:]{0,200}:(?P<value>[^\s/?#@]+)|(?P<user>[^\s/?#@:]{20,}))@"
)
_OPTION_WITHIN: Final = re.compile(
    r"(?<![\w-])--?(?P<name>[A-Za-z][\w-]{0,200})[ \t]{1,8}[\"']?(?P<value>[^\s\"'-][^\s\"']*)"
)
_OPTION: Final = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)")
_OWN_FORM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
    r"|\beyJ[\w-]{8,2000}\.[\w-]{8}"  # JWT
    r"|\bS[ACNOUX][A-Z2-7]{56}\b"  # seed of an nkey
    r"|\bsk-(?=[\w-]{0,200}\d)[\w-]{20}|\b[rs]k_(?:live|test)_\w{16}"
    r"|\bgh[oprsu]_[A-Za-z0-9]{20}|\bgithub_pat_\w{20}|\bglpat-[\w-]{16}"
    r"|\bxox[abeprs]-[\w-]{10}|\bxapp-[\w-]{10}"
    r"|\bA[KS]IA[A-Z0-9]{16}\b|\bAIza[\w-]{35}"
    r"|\b\d{8,10}:[\w-]{35}\b"  # token of a Telegram bot
    r"|\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}\b"  # token of a Discord bot
    r"|\bhf_[A-Za-z0-9]{30}|\bnpm_[A-Za-z0-9]{30}|\bpypi-[\w-]{40}"
)
# Matches a reference to a credential, such as `${GITHUB_TOKEN}`, which is not a credential.
_REFERENCE: Final = re.compile(
    r"\$\{?[A-Za-z_]|\{\{|\$\(|%[A-Za-z_]{1,200}%|<[^>]{0,200}>|\.{3}|\N{HORIZONTAL ELLIPSIS}|\*{3}"
    r"|os\.(?:environ|getenv)|process\.env|env[.:(]|vault:|op://"
)
_PLAIN_WORD: Final = re.compile(r"[a-z]+[.,;:!?]?")
_RANDOM: Final = re.compile(r"\d|[a-z][A-Z]|[+/=]")
_LEAST_RANDOM: Final = 8
_PAIR: Final = 2


def holds_credential(value: JsonValue) -> bool:
    """Return whether a JSON value holds a credential, at any depth.

    Parses strings that contain JSON and checks their content as well.
    """
    # Iterates instead of recursing: JSON in strings may nest deeper than Python's stack.
    left: list[JsonValue] = [value]
    while left:
        match left.pop():
            case dict() as members:
                if _is_pair(members) or any(map(names_credential, members)):
                    return True
                left.extend(members)
                left.extend(members.values())
            case list() as items:
                if _has_credential_behind_name(items):
                    return True
                left.extend(items)
            case str() as text:
                parsed = _json_in(text)
                if _OWN_FORM.search(text) is not None or (not parsed and is_credential(text)):
                    return True
                left.extend(parsed)
            case _:
                pass
    return False


def names_credential(name: str) -> bool:
    """Return whether the value of a named field is a credential according to that name."""
    words = "_".join(word for word in _WORD_ENDS.split(name) if word)
    return _NAME.search(words.lower()) is not None


def is_credential(text: str) -> bool:
    """Return whether text is, or contains, a credential."""
    texts = {text, unquote(text)} if "%" in text else {text}
    return any(_carries_credential(variant) for variant in texts)


def _carries_credential(text: str) -> bool:
    if _OWN_FORM.search(text) is not None or _is_authorization(text):
        return True
    found = (*_AUTHORIZATION_WITHIN.finditer(text), *_IN_QUERY.finditer(text))
    if any(not _is_reference(match["value"]) for match in found):
        return True
    return _has_user_of_url(text) or _has_named_value(text)


def _is_authorization(text: str) -> bool:
    """Return whether text is the value of an `Authorization` header, such as `Bearer abc-1`."""
    found = _AUTHORIZATION.fullmatch(text)
    if found is None or not _is_secret(found["value"]):
        return False
    return found["scheme"].lower() == "bearer" or _looks_random(found["value"])


def _has_user_of_url(text: str) -> bool:
    return any(
        not _is_reference(found["value"] or found["user"]) for found in _USER_OF_URL.finditer(text)
    )


def _has_named_value(text: str) -> bool:
    """Return whether text assigns a value to a name of a credential."""
    assigned = (*_ASSIGNED.finditer(text), *_MEMBER_WITHIN.finditer(text))
    if any(_is_named(found) and not _is_reference(found["value"]) for found in assigned):
        return True
    options = (found for found in _OPTION_WITHIN.finditer(text) if _is_named(found))
    if any(_is_secret(found["value"]) for found in options):
        return True
    pairs = (*_LINE.finditer(text), *_HEADER_WITHIN.finditer(text))
    return any(_is_named(found) and _is_no_sentence(**found.groupdict()) for found in pairs)


def _is_named(found: re.Match[str]) -> bool:
    return names_credential(found["name"])


def _is_no_sentence(name: str, value: str) -> bool:
    """Return whether `name: value` assigns a value and is not a remark about the name."""
    value = value.strip(" \t\r\"',")
    if _is_authorization(value):
        return True
    if name.lower().endswith("cookie"):
        return "=" in value
    if name.lower().endswith("authorization"):
        return not any(map(_is_reference, value.split()))
    return len(value.split()) == 1 and _is_secret(value)


def _is_secret(value: str) -> bool:
    """Return whether a single word is neither a reference nor a natural word."""
    return not _is_reference(value) and _PLAIN_WORD.fullmatch(value) is None


def _looks_random(value: str) -> bool:
    return len(value) >= _LEAST_RANDOM and _RANDOM.search(value) is not None


def _is_reference(value: str) -> bool:
    return _REFERENCE.match(value) is not None


def _is_pair(members: dict[str, JsonValue]) -> bool:
    """Return whether an object names a credential in one member and holds it in another."""
    by_role = [(_last_word(name), value) for name, value in members.items()]
    names = (value for role, value in by_role if role in _NAMING)
    if not any(isinstance(name, str) and _is_credential_name(name) for name in names):
        return False
    return any(
        not isinstance(value, bool) and bool(value) and not _is_reference(str(value))
        for role, value in by_role
        if role in _VALUED
    )


def _last_word(name: str) -> str:
    words = [word for word in _WORD_ENDS.split(name) if word]
    return words[-1].lower() if words else ""


def _is_credential_name(text: str) -> bool:
    """Return whether arbitrary text is the name of a credential."""
    return _WHOLE_NAME.fullmatch(text) is not None and names_credential(text)


def _has_credential_behind_name(items: list[JsonValue]) -> bool:
    """Return whether a list is a name and value pair, or program arguments, with a credential."""
    for name, value in pairwise(items):
        if not (isinstance(name, str) and isinstance(value, str)) or _is_reference(value):
            continue
        option = _OPTION.fullmatch(name)
        if option is not None:
            if names_credential(option["name"]) and not value.startswith("-"):
                return True
        elif len(items) == _PAIR and _is_credential_name(name):
            return _is_secret(value) and not names_credential(value)
    return False


def _json_in(text: str) -> list[JsonValue]:
    """Return the JSON object or array in a text; None for other text, bare words and numbers."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return []
    try:
        return [from_json(text)]
    except ValueError:
        return []
