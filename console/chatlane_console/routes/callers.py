"""Callers: who makes a request, and what the request may reach."""

import logging
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Final

from fastapi import Depends, Header, Request

from chatlane_console.console_state import ConsoleState
from chatlane_console.conversations import Conversations
from chatlane_console.http.problems import ProblemError
from chatlane_console.routes.bodies import PersonOfAccount
from chatlane_console.settings import ConsoleSettings, SignInKind
from chatlane_console.sign_in.visitors import NotAdmittedError, Visitor
from chatlane_schemas.session_api.people import Person

_log = logging.getLogger("chatlane_console")

_KEY_PATTERN: Final = r"^[\x21-\x7e]{1,200}$"


def state_of(request: Request) -> ConsoleState:
    """Return the state of the console."""
    state = request.app.state.console
    assert isinstance(state, ConsoleState)  # noqa: S101 - `create_app` has set it
    return state


State = Annotated[ConsoleState, Depends(state_of)]


def get_visitor(request: Request, state: State) -> Visitor:
    """Return the caller of a request.

    Raises:
        ProblemError: Nobody has signed in.
    """
    if state.settings.sign_in is SignInKind.PROXY:
        return _visitor_of_proxy(request, state)
    visitor = state.cookies.visitor(request)
    if visitor is None:
        raise ProblemError(HTTPStatus.UNAUTHORIZED, "signed_out", "sign in first")
    return visitor


def _visitor_of_proxy(request: Request, state: ConsoleState) -> Visitor:
    settings = state.settings
    person_id = request.headers.get(settings.proxy_person_header)
    if not _is_trusted(request, settings):
        if person_id is not None:
            _log.warning("proxy_header_refused")
        raise ProblemError(HTTPStatus.FORBIDDEN, "wrong_proxy", "come through the proxy")
    if not person_id:
        raise ProblemError(HTTPStatus.UNAUTHORIZED, "signed_out", "sign in first")
    roles = request.headers.get(settings.proxy_roles_header, "").split(",")
    name = request.headers.get(settings.proxy_name_header)
    try:
        return state.admission.visitor(
            person_id, name, {role.strip() for role in roles}, request.headers.get
        )
    except NotAdmittedError:
        raise ProblemError(
            HTTPStatus.FORBIDDEN, "not_admitted", "this person may not use the console"
        ) from None


def _is_trusted(request: Request, settings: ConsoleSettings) -> bool:
    if request.client is None:
        return False
    try:
        address = ip_address(request.client.host)
    except ValueError:
        return False
    return any(address in network for network in settings.proxy_addresses)


SignedIn = Annotated[Visitor, Depends(get_visitor)]


def own_conversations(visitor: SignedIn, state: State) -> Conversations:
    """Return the requests that reach the sessions of the person."""
    return state.conversations_of(visitor)


def check_operator(request: Request, visitor: SignedIn) -> Visitor:
    """Return the operator who makes a request.

    Raises:
        ProblemError: The person is no operator.
    """
    if not visitor.is_operator:
        raise ProblemError(HTTPStatus.FORBIDDEN, "forbidden", "only operators may do that")
    # The audit of the service names the console; this line names the person.
    about = {"sign_in": visitor.id, "method": request.method, "path": request.url.path}
    _log.info("operator_request", extra={**about, "operator": visitor.person.id})
    return visitor


Operator = Annotated[Visitor, Depends(check_operator)]


def all_conversations(_: Operator, state: State) -> Conversations:
    """Return the requests that reach all sessions."""
    return state.all_conversations()


def person_of(state: ConsoleState, given: PersonOfAccount) -> Person:
    """Return a person whom an operator names; by default one of the people of this console."""
    settings = state.settings
    is_own = given.platform is None and given.account is None
    return Person(
        platform=given.platform or settings.platform,
        account=given.account or settings.account,
        scope=settings.scope if is_own and given.scope is None else given.scope,
        id=given.id,
    )


def idempotency_key(
    request: Request,
    visitor: SignedIn,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=_KEY_PATTERN,
            description="Random key of this change; a request that is repeated with it changes "
            "nothing a second time and gets the same answer.",
        ),
    ] = None,
) -> str | None:
    """Return the id of the request to the service, which is the same for a repeated one.

    The ids of different people and routes never meet, whatever keys they choose.
    """
    if key is None:
        return None
    about = (visitor.person.model_dump_json(), request.method, request.url.path, key)
    return sha256("\0".join(about).encode()).hexdigest()


RequestId = Annotated[str | None, Depends(idempotency_key)]


def get_expected_version(
    tag: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=r'^(\*|"[A-Za-z0-9._-]{1,64}")$',
            description="`ETag` of what the change is based on; the change is refused with 412 if "
            "it has changed since.",
        ),
    ] = None,
) -> str | None:
    """Return the version that a change is based on."""
    return None if tag is None or tag == "*" else tag.strip('"')


ExpectedVersion = Annotated[str | None, Depends(get_expected_version)]
