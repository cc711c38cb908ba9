"""Bearer tokens, and who makes a request with one."""

from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from chatlane_bridges.http.problems import ApiProblem
from chatlane_bridges.http.settings import DeclaredKey, HttpSettings
from chatlane_schemas.session_api.people import Person

_SHORTEST_TOKEN: Final = 16

KeyT = TypeVar("KeyT", bound=DeclaredKey)


class BearerKeys(Generic[KeyT]):
    """Finds the key of a request by its token; keeps digests only."""

    def __init__(self, declared: Mapping[str, KeyT], settings: HttpSettings) -> None:
        """Read the tokens that are in files.

        Raises:
            OSError: A file cannot be read.
            ValueError: A token is too short, or two keys have the same one.
        """
        self._platform = settings.platform
        self._account = settings.account or settings.principal
        self._keys: dict[str, KeyT] = {}
        for name, key in declared.items():
            digest = key.sha256 or _digest_of_file(name, key)
            if digest in self._keys:
                raise ValueError(f"key {name}: another key has the same token")
            self._keys[digest] = key

    def find(self, headers: Mapping[str, str]) -> tuple[KeyT, Person]:
        """Return the key of a request, and the person for whom it is made.

        Raises:
            ApiProblem: The token is not known, or no person is named.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # A digest of the token is looked up, so the time tells nothing about tokens.
        key = self._keys.get(sha256(token.strip().encode()).hexdigest())
        if scheme.lower() != "bearer" or key is None:
            raise ApiProblem(
                HTTPStatus.UNAUTHORIZED, "invalid_api_key", "The API key is not known."
            )
        person_id = key.person or headers.get(key.person_header or "", "")
        if not person_id:
            raise ApiProblem(
                HTTPStatus.BAD_REQUEST,
                "missing_person",
                f"This key needs the header {key.person_header} with the id of the person.",
            )
        return key, Person(platform=self._platform, account=self._account, id=person_id)


def _digest_of_file(name: str, key: DeclaredKey) -> str:
    assert key.token_file is not None  # noqa: S101 - the model has checked it
    token = key.token_file.read_text("utf-8").strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"key {name}: a token has at least {_SHORTEST_TOKEN} characters")
    return sha256(token.encode()).hexdigest()
