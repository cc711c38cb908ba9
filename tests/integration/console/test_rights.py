"""Every route of the OpenAPI document, asked by everybody: one person's words stay with the person."""

from typing import Any
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_client import SessionApi, TranscriptApi
from chatlane_schemas import Person
from tests.integration.client.routing import ACCOUNT, PLATFORM, PRINCIPAL
from tests.integration.console.console_world import API, Browser, ConsoleWorld
from tests.integration.console.every_route import ROUTES, Route

pytestmark = pytest.mark.integration

WORDS = "secret words of Ann"


async def opened(browser: Browser) -> str:
    """Open a session of a person with a message, a title and an answer to come."""
    session_id = str((await browser.post(f"{API}/sessions", json={})).json()["id"])
    path = f"{API}/sessions/{session_id}"
    assert (await browser.post(f"{path}/messages", json={"text": WORDS})).status_code == 202
    assert (await browser.patch(path, json={"title": "Ann's secret"})).status_code == 200
    return session_id


async def stored(client: Client, console: ConsoleWorld, session_id: str) -> list[Any]:
    """Return all that the service has about the sessions of Ann."""
    ann = Person(platform=PLATFORM, account=ACCOUNT, id=f"ann{console.suffix}")
    api = SessionApi(client, principal=PRINCIPAL, acting_for=ann)
    transcripts = TranscriptApi(client, principal=PRINCIPAL, acting_for=ann)
    listed = [session async for session in api.list_all()]
    assert [str(session.id) for session in listed] == [session_id]
    return [*listed, *[page async for page in transcripts.pages(listed[0].id)]]


async def asked(
    browser: Browser, route: Route, session_id: str, project_id: str = ""
) -> tuple[int, str]:
    """Return the status and the body of an answer; only the status of a stream that opens."""
    request = route.request(session_id, project_id or str(UUID(int=7)))
    if not route.is_stream:
        response = await browser.request(**request)
        return response.status_code, response.text
    async with browser.stream(**request) as response:
        body = "" if response.status_code == 200 else (await response.aread()).decode()
        return response.status_code, body


async def test_nobody_reaches_anything_without_a_sign_in(
    console: ConsoleWorld, client: Client
) -> None:
    async with console.person("ann") as ann, console.browser() as nobody:
        session_id = await opened(ann)
        before = await stored(client, console, session_id)
        for route in ROUTES:
            if route.path != f"{API}/sign-out":
                assert (await asked(nobody, route, session_id))[0] == 401, route
        assert await stored(client, console, session_id) == before


async def test_another_person_finds_nothing_of_it_and_changes_nothing(
    console: ConsoleWorld, client: Client
) -> None:
    async with console.person("ann") as ann, console.person("bob") as bob:
        session_id = await opened(ann)
        made = await ann.post(f"{API}/projects", json={"name": "Ann's secret"})
        await ann.patch(f"{API}/sessions/{session_id}", json={"project_id": made.json()["id"]})
        before = await stored(client, console, session_id)
        for route in ROUTES:
            status, body = await asked(bob, route, session_id, made.json()["id"])
            assert "secret" not in body, route
            if route.is_for_operators:
                assert status == 403, route
            elif route.is_about_a_session or route.is_about_a_folder or route.is_about_an_erasure:
                assert status == 404, (route, body)
                assert session_id not in body, route
            else:
                assert status < 300, (route, body)
        assert await stored(client, console, session_id) == before
        [folder] = (await ann.get(f"{API}/projects")).json()["projects"]
        assert folder == made.json() | {"sessions": 1}


async def test_the_owner_and_an_operator_reach_it(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann, console.person("eve", "operators") as operator:
        session_id = await opened(ann)
        for browser, is_operator in ((ann, False), (operator, True)):
            for route in ROUTES:
                is_reached = route.is_for_operators is is_operator
                if route.method == "delete" or not is_reached or not route.is_about_a_session:
                    continue
                status, body = await asked(browser, route, session_id)
                known = route.path.endswith(("/content", "/switch", "/question", "/{place}"))
                assert status < 300 or status in {409, 412} or known, (route, status, body)
        page = (await operator.get(f"{API}/operator/sessions")).json()
        assert session_id in [session["id"] for session in page["sessions"]]


async def test_a_change_from_a_page_of_another_site_is_refused(
    console: ConsoleWorld, client: Client
) -> None:
    async with console.person("ann") as ann:
        session_id = await opened(ann)
        before = await stored(client, console, session_id)
        changes = [route for route in ROUTES if route.is_change and not route.is_for_operators]
        for route in changes:
            request = route.request(session_id)
            headers = request.pop("headers", {})
            for forged in (
                {"X-Chatlane-Request": None},
                {"Origin": "https://evil.example"},
                {"Origin": "null"},
                {"Sec-Fetch-Site": "cross-site"},
                {"Sec-Fetch-Site": "same-site"},
            ):
                built = ann.build_request(**request, headers={**headers})
                for name, value in forged.items():
                    if value is None:
                        del built.headers[name]
                    else:
                        built.headers[name] = value
                response = await ann.send(built)
                assert (response.status_code, response.json()["code"]) == (403, "forged"), route
        assert await stored(client, console, session_id) == before
        assert len(changes) > 10
