"""Sign-in at a provider of OpenID Connect that runs here."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import create_server
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from chatlane_servers.programs import Program
from tests.integration.console.console_world import API, ConsoleWorld, open_console
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

PEOPLE = (
    {"sub": "ann", "name": "Ann", "roles": ["staff"], "mail": {"id": 7}},
    {"sub": "eve", "name": "Eve", "roles": ["staff", "operators"]},
    {"sub": "bob", "name": "Bob", "roles": ["others"]},
)


@pytest.fixture(scope="module")
async def issuer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a provider, in a process of its own."""
    port = free_port()
    arguments = ["-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
    for person in PEOPLE:
        arguments += ["--user-claims", json.dumps(person)]
    provider = Program("provider", arguments, tmp_path_factory.mktemp("provider"))
    provider.start()
    url = f"http://127.0.0.1:{port}"
    try:
        await eventually(lambda: is_up(url))
        yield url
    finally:
        await provider.stop()


async def is_up(url: str) -> bool:
    try:
        async with httpx.AsyncClient() as client:
            response = await client.get(f"{url}/.well-known/openid-configuration")
    except httpx.HTTPError:
        return False
    return response.is_success


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@asynccontextmanager
async def opened(routed_url: str, issuer: str) -> AsyncIterator[ConsoleWorld]:
    """Serve a console whose people sign in at a provider."""
    port = free_port()
    chosen = {
        "port": port,
        "public_url": f"http://127.0.0.1:{port}",
        "sign_in": "oidc",
        "oidc_issuer": issuer,
        "oidc_client_id": "console",
        "oidc_client_secret": "a secret of tests",
        "person_role": "staff",
        "further_accounts": "mail/desk=mail.id",
    }
    async with open_console(routed_url, **chosen) as world:
        yield world


async def consent(url: str, person: str) -> str:
    """Sign in at the provider, and return where it sends the browser."""
    async with httpx.AsyncClient() as client:
        assert (await client.get(url)).status_code == 200
        response = await client.post(url, data={"sub": person})
        assert response.status_code == 302, response.text
        return response.headers["location"]


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


async def test_a_person_signs_in_with_roles_from_claims(routed_url: str, issuer: str) -> None:
    async with opened(routed_url, issuer) as console:
        for person, roles, further in (
            ("ann", ["person"], ["mail/desk"]),
            ("eve", ["operator", "person"], []),
        ):
            async with console.browser() as browser:
                begun = await browser.get("/sign-in")
                asked = parse_qs(urlsplit(begun.headers["location"]).query)
                assert asked["code_challenge_method"] == ["S256"]
                back = await consent(begun.headers["location"], person)
                done = await browser.get(path_of(back))
                assert (done.status_code, done.headers["location"]) == (303, "/")
                me = (await browser.get(f"{API}/me")).json()
                assert (me["person_id"], me["name"], me["roles"]) == (person, person.title(), roles)
                assert me["further_accounts"] == further


async def test_an_answer_counts_once_and_in_the_browser_that_began_it(
    routed_url: str, issuer: str
) -> None:
    async with (
        opened(routed_url, issuer) as console,
        console.browser() as attacker,
        console.browser() as victim,
    ):
        begun = await attacker.get("/sign-in")
        back = path_of(await consent(begun.headers["location"], "ann"))
        # The victim follows the attacker's link, with no sign-in begun and with an own one.
        assert (await victim.get(back)).status_code == 403
        await victim.get("/sign-in")
        assert (await victim.get(back)).status_code == 403
        assert (await victim.get(f"{API}/me")).status_code == 401

        query = dict(parse_qsl(urlsplit(back).query))
        for change in ({"state": "x"}, {"code": "x"}, {"iss": "https://evil.example"}):
            wrong = await attacker.get("/sign-in/callback", params={**query, **change})
            assert (wrong.status_code, wrong.json()["code"]) == (403, "sign_in_failed")
            await attacker.get("/sign-in")
        assert (await attacker.get(f"{API}/me")).status_code == 401


async def test_a_person_without_the_role_is_not_admitted(routed_url: str, issuer: str) -> None:
    async with opened(routed_url, issuer) as console, console.browser() as browser:
        begun = await browser.get("/sign-in")
        refused = await browser.get(path_of(await consent(begun.headers["location"], "bob")))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_admitted")
        assert (await browser.get(f"{API}/me")).status_code == 401


async def test_a_provider_that_is_away_is_a_problem(routed_url: str) -> None:
    issuer = f"http://127.0.0.1:{free_port()}"
    async with opened(routed_url, issuer) as console, console.browser() as browser:
        refused = await browser.get("/sign-in")
        assert (refused.status_code, refused.json()["code"]) == (502, "sign_in_failed")
