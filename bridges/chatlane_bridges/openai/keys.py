"""The caller of a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from chatlane_bridges.http.bearer_keys import BearerKeys
from chatlane_bridges.http.problems import ApiProblem
from chatlane_bridges.openai.settings import Declarations, DeclaredModel, ModelKey, OpenAiSettings
from chatlane_schemas.session_api.people import Person


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
    """Finds the caller of a request by its token."""

    def __init__(self, declared: Declarations, settings: OpenAiSettings) -> None:
        """Read the tokens that are in files.

        Raises:
            OSError: A file cannot be read.
            ValueError: A token is too short, or two keys have the same one.
        """
        self._models = declared.models
        self._keys: BearerKeys[ModelKey] = BearerKeys(declared.keys, settings)

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a request.

        Raises:
            ApiProblem: The token is not known, or no person is named.
        """
        key, person = self._keys.find(headers)
        allowed = self._models if key.models is None else key.models
        return Caller(person, {model_id: self._models[model_id] for model_id in allowed})
