"""Hold the secret of the erasure list, which stores people as digests and never as ids."""

from __future__ import annotations

from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.owners import owner_text
from chatlane.domain.addressing.people import people_in

if TYPE_CHECKING:
    from chatlane.domain.addressing.sources import Address

MIN_KEY_BYTES: Final = 32


class ErasureKey:
    """Makes the digests under which the erasure list stores people.

    Args:
        secret: At least `MIN_KEY_BYTES`. With it one can check whether a person is on the list.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = sha256(secret).digest()
        self.id = self._hash("", b"key id")[:8].hex()

    def _hash(self, text: str, purpose: bytes) -> bytes:
        return blake2b(text.encode(), digest_size=32, key=self._key, person=purpose).digest()

    def digest(self, platform: str, account: str, scope: str | None, form: str) -> bytes:
        """Return the digest of a person's id."""
        return self._hash(owner_text(platform, account, scope, form), b"person")

    def digests_of(self, address: Address) -> frozenset[bytes]:
        """Return the digests of the people of a message: its sender, or a DM's peer."""
        peer, sender = people_in(address)
        forms = sender if peer is None else (peer, *sender)
        return frozenset(
            self.digest(address.platform, address.account, address.scope, form) for form in forms
        )
