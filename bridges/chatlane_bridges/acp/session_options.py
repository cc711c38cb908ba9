"""Models, modes and options of a session as an editor shows and sets them."""

from typing import TYPE_CHECKING, Any, Final

from chatlane_bridges.acp.errors import invalid
from chatlane_bridges.acp.service_link import Service
from chatlane_bridges.acp.settings import Choice, EditorOptions, Option
from chatlane_schemas.session_api.session_state import ModelOverride
from chatlane_schemas.session_api.sessions import SessionView

if TYPE_CHECKING:
    from pydantic import JsonValue

MODEL: Final = "model"
DEFAULT_MODEL: Final = "default"
# Keys of the config of a session, where workers find them.
MODE_KEY: Final = "mode"
OPTIONS_KEY: Final = "options"
DIRECTORIES_KEY: Final = "additional_directories"


def choices_of(session: SessionView, offered: EditorOptions) -> dict[str, Any]:
    """Return the modes and options of an answer that opens a session."""
    shown: dict[str, Any] = {}
    if offered.modes:
        shown["modes"] = {
            "currentModeId": _mode(session, offered),
            "availableModes": [_described(mode, "id") for mode in offered.modes],
        }
    if options := options_of(session, offered):
        shown["configOptions"] = options
    return shown


def options_of(session: SessionView, offered: EditorOptions) -> list[dict[str, Any]]:
    """Return all options of a session with their values."""
    shown: list[dict[str, Any]] = []
    if offered.models:
        default = Choice(id=DEFAULT_MODEL, name="Default of the agent")
        models = (default, *offered.models)
        current = model_of(session)
        if current not in {model.id for model in models}:
            models = (*models, Choice.model_construct(id=current))
        shown.append({"id": MODEL, "name": "Model", "category": MODEL} | _select(current, models))
    stored = _stored_options(session)
    for option in offered.options:
        value = stored.get(option.id)
        if not isinstance(value, str | bool) or not option.takes(value):
            value = option.default
        described = _described(option, "id")
        if option.category is not None:
            described["category"] = option.category
        if option.values:
            described |= _select(str(value), option.values)
        else:
            described |= {"type": "boolean", "currentValue": value}
        shown.append(described)
    return shown


def model_of(session: SessionView) -> str:
    """Return the chosen model of a session."""
    override = session.model_override
    chosen = session.model if override is None else override.model
    return chosen or DEFAULT_MODEL


async def choose_model(service: Service, session: SessionView, model: str) -> SessionView:
    """Let another model answer; `default` is that of the agent."""
    override = None if model == DEFAULT_MODEL else ModelOverride(model=model)
    return await service.life.override_model(session.id, override)


async def set_mode(
    service: Service, session: SessionView, offered: EditorOptions, mode_id: str
) -> SessionView:
    """Set the mode of a session.

    Raises:
        RequestError: There is no such mode.
    """
    if mode_id not in {mode.id for mode in offered.modes}:
        raise invalid("There is no such mode.")
    return await service.sessions.update(session.id, config_patch={MODE_KEY: mode_id})


async def set_option(
    service: Service,
    session: SessionView,
    offered: EditorOptions,
    option_id: str,
    value: str | bool,  # noqa: FBT001 - the value of a switch
) -> SessionView:
    """Set an option of a session, which stays for its other users as well.

    Raises:
        RequestError: There is no such option, or it does not take the value.
    """
    if option_id == MODEL:
        allowed = {DEFAULT_MODEL, *(model.id for model in offered.models)}
        if not isinstance(value, str) or value not in allowed:
            raise invalid("There is no such model.")
        return await choose_model(service, session, value)
    option = _option(offered, option_id)
    if not option.takes(value):
        raise invalid("The option does not take this value.")
    patch: dict[str, JsonValue] = {OPTIONS_KEY: {option.id: value}}
    return await service.sessions.update(session.id, config_patch=patch)


def directories_of(session: SessionView) -> list[str]:
    """Return the directories of a session besides its working directory."""
    found = (session.config or {}).get(DIRECTORIES_KEY)
    return [str(directory) for directory in found] if isinstance(found, list) else []


def _option(offered: EditorOptions, option_id: str) -> Option:
    for option in offered.options:
        if option.id == option_id:
            return option
    raise invalid("There is no such option.")


def _mode(session: SessionView, offered: EditorOptions) -> str:
    stored = (session.config or {}).get(MODE_KEY)
    known = {mode.id for mode in offered.modes}
    return stored if isinstance(stored, str) and stored in known else offered.modes[0].id


def _stored_options(session: SessionView) -> dict[str, Any]:
    stored = (session.config or {}).get(OPTIONS_KEY)
    return stored if isinstance(stored, dict) else {}


def _described(choice: Choice, key: str) -> dict[str, Any]:
    described = {key: choice.id, "name": choice.shown}
    if choice.description is not None:
        described["description"] = choice.description
    return described


def _select(current: str, values: tuple[Choice, ...]) -> dict[str, Any]:
    options = [_described(value, "value") for value in values]
    return {"type": "select", "currentValue": current, "options": options}
