"""Routes of sign-in: the local link, the provider, who has signed in, and sign-out."""

import logging
from hmac import compare_digest
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from chatlane_console.console_state import ConsoleState
from chatlane_console.http.problems import ProblemError, problem_response
from chatlane_console.routes.bodies import FileLimits, Me
from chatlane_console.routes.callers import SignedIn, State
from chatlane_console.settings import SignInKind
from chatlane_console.sign_in.oidc import CALLBACK_PATH, SignInFailedError
from chatlane_console.sign_in.visitors import NotAdmittedError

_log = logging.getLogger("chatlane_console")

api_router = APIRouter()
page_router = APIRouter(include_in_schema=False)


@api_router.get("/me", summary="Tell who has signed in")
async def get_me(visitor: SignedIn, state: State) -> Me:
    """Return the person who has signed in."""
    media = state.settings.media
    return Me(
        name=visitor.name,
        platform=visitor.person.platform,
        account=visitor.person.account,
        person_id=visitor.person.id,
        further_accounts=[
            f"{account.platform}/{account.account}" for account in visitor.person.ids[1:]
        ],
        roles=sorted(visitor.roles),
        files=None
        if state.files is None
        else FileLimits(max_bytes=media.max_bytes, types=media.types),
        can_sign_out=state.settings.sign_in is not SignInKind.PROXY,
    )


@api_router.post("/sign-out", status_code=HTTPStatus.NO_CONTENT, summary="Sign out")
async def sign_out(state: State, response: Response) -> None:
    """Let the browser forget who has signed in."""
    state.cookies.forget(response)


@page_router.get("/sign-in")
async def sign_in(state: State) -> Response:
    """Lead a browser to where its person signs in."""
    match state.settings.sign_in:
        case SignInKind.OIDC:
            return await _begin_at_provider(state)
        case SignInKind.LINK:
            raise ProblemError(
                HTTPStatus.UNAUTHORIZED,
                "signed_out",
                "open the link that `chatlane console` has printed",
            )
        case SignInKind.PROXY:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)


@page_router.get("/sign-in/link")
async def sign_in_by_link(state: State, token: str = "") -> Response:
    """Sign in who has the local link."""
    is_right = compare_digest(token.encode(), state.link_token.encode())
    if state.settings.sign_in is not SignInKind.LINK or not is_right:
        raise ProblemError(HTTPStatus.FORBIDDEN, "wrong_token", "this link is not valid any more")
    response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    state.cookies.remember(response, state.admission.visitor_of_link())
    return response


async def _begin_at_provider(state: ConsoleState) -> Response:
    try:
        begun = await state.provider.begin()
    except SignInFailedError as error:
        _log.warning("sign_in_failed", extra={"step": str(error)})
        raise ProblemError(
            HTTPStatus.BAD_GATEWAY, "sign_in_failed", "the provider does not answer"
        ) from None
    response = RedirectResponse(begun.url, HTTPStatus.SEE_OTHER)
    state.cookies.remember_begun(response, begun.expected)
    return response


@page_router.get(CALLBACK_PATH)
async def finish_at_provider(request: Request, state: State) -> Response:
    """Sign in who comes back from the provider, in the browser in which the sign-in began."""
    expected = state.cookies.begun(request)
    if state.settings.sign_in is not SignInKind.OIDC or expected is None:
        raise ProblemError(HTTPStatus.FORBIDDEN, "sign_in_failed", "begin at /sign-in")
    try:
        claims = await state.provider.finish(request.query_params, expected)
        visitor = state.admission.visitor_of_claims(claims)
    except SignInFailedError as error:
        _log.warning("sign_in_failed", extra={"step": str(error)})
        response: Response = problem_response(
            HTTPStatus.FORBIDDEN, "sign_in_failed", "begin at /sign-in again"
        )
    except NotAdmittedError:
        response = problem_response(
            HTTPStatus.FORBIDDEN, "not_admitted", "this person may not use the console"
        )
    else:
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        state.cookies.remember(response, visitor)
    # Also after a failure: an answer counts once.
    state.cookies.forget_begun(response)
    return response
