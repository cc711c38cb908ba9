"""Signatures of Standard Webhooks: HMAC-SHA256 of id, time and body."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

_PREFIX: Final = "whsec_"
_MIN_BYTES: Final = 24
_MAX_BYTES: Final = 64


def signing_key(secret: str) -> bytes:
    """Return the key of a secret `whsec_...`.

    Raises:
        ValueError: It is not one, or its length is not that of the specification.
    """
    if not secret.startswith(_PREFIX):
        raise ValueError(f"a secret begins with {_PREFIX}")
    key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        raise ValueError(f"a secret has {_MIN_BYTES} to {_MAX_BYTES} bytes, in base64")
    return key


def signed_headers(
    keys: Iterable[bytes], event_id: str, seconds: int, body: bytes
) -> dict[str, str]:
    """Return the headers of one attempt.

    Args:
        keys: Each adds a signature.
        event_id: The same in each attempt.
        seconds: Time of the attempt, in seconds of Unix time.
        body: The body as it is sent.
    """
    content = f"{event_id}.{seconds}.".encode() + body
    digests = (hmac.digest(key, content, sha256) for key in keys)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{b64encode(digest).decode()}" for digest in digests),
    }
