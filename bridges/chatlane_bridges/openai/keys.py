"""Bearer tokens, and who makes a request with one."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from chatlane_bridges.openai.problems import ApiProblem
from chatlane_bridges.openai.settings import Declarations, DeclaredKey, DeclaredModel
from chatlane_schemas.session_api.people import Person

_SHORTEST_TOKEN: Final = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """The person for whom a request is made, and the models that the key of it may use."""

    person: Person
    models: Mapping[str, DeclaredModel]

    def model(self, model_id: str) -> DeclaredModel:
        """Return a model that the key may use.

        Raises:
            ApiProblem: There is none with this id.
        """
        model = self.models.get(model_id)
        if model is None:
            raise ApiProblem(
                HTTPStatus.NOT_FOUND, "model_not_found", "There is no such model.", param="model"
            )
        return model


class Keys:
    """Finds the caller of a request by its token; keeps digests only."""

    def __init__(self, declared: Declarations, platform: str, account: str) -> None:
        """Read the tokens that are in files.

        Raises:
            OSError: A file cannot be read.
            ValueError: A token is too short, or two keys have the same one.
        """
        self._models = declared.models
        self._platform = platform
        self._account = account
        self._keys: dict[str, DeclaredKey] = {}
        for name, key in declared.keys.items():
            digest = key.sha256 or _digest_of_file(name, key)
            if digest in self._keys:
                raise ValueError(f"key {name}: another key has the same token")
            self._keys[digest] = key

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a request.

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
        allowed = self._models if key.models is None else key.models
        return Caller(
            Person(platform=self._platform, account=self._account, id=person_id),
            {model_id: self._models[model_id] for model_id in allowed},
        )


def _digest_of_file(name: str, key: DeclaredKey) -> str:
    assert key.token_file is not None  # noqa: S101 - the model has checked it
    token = key.token_file.read_text("utf-8").strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"key {name}: a token has at least {_SHORTEST_TOKEN} characters")
    return sha256(token.encode()).hexdigest()
