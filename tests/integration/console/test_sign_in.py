"""Sign-in by a local link and by a trusted proxy, and what nobody may forge."""

import json
import logging

import pytest

from tests.integration.console.console_world import API, PROXY, ConsoleWorld, open_console

pytestmark = pytest.mark.integration

COOKIE = "chatlane-console"


async def test_the_link_signs_in_and_signing_out_forgets(routed_url: str) -> None:
    async with open_console(routed_url) as console, console.browser() as browser:
        refused = await browser.get("/sign-in/link", params={"token": "x" * 32})
        assert (refused.status_code, refused.json()["code"]) == (403, "wrong_token")
        assert COOKIE not in browser.cookies

        response = await browser.get(console.link)
        assert (response.status_code, response.headers["location"]) == (303, "/")
        attributes = response.headers["set-cookie"].lower()
        assert {"httponly", "samesite=strict", "path=/"} <= set(attributes.split("; "))
        me = (await browser.get(f"{API}/me")).json()
        assert (me["person_id"], me["roles"]) == ("me", ["operator", "person"])

        assert (await browser.post(f"{API}/sign-out")).status_code == 204
        assert COOKIE not in browser.cookies
        assert (await browser.get(f"{API}/me")).status_code == 401


async def test_a_planted_cookie_is_nobody_and_a_sign_in_makes_another(routed_url: str) -> None:
    async with (
        open_console(routed_url) as console,
        console.browser() as attacker,
        console.browser() as victim,
    ):
        await attacker.get(console.link)
        planted = attacker.cookies[COOKIE]
        body, _, signature = planted.partition(".")
        for text in (
            "planted",
            f"{body}x.{signature}",
            f"{planted}x",
            json.dumps({"id": "me"}),
        ):
            response = await victim.get(f"{API}/me", headers={"Cookie": f"{COOKIE}={text}"})
            assert response.status_code == 401
        victim.cookies.set(COOKIE, planted)
        await victim.get(console.link)
        assert planted not in [cookie.value for cookie in victim.cookies.jar if cookie.domain]
    async with open_console(routed_url) as other, other.browser() as browser:
        # Another process has another key, if none is set.
        response = await browser.get(f"{API}/me", headers={"Cookie": f"{COOKIE}={planted}"})
        assert response.status_code == 401


async def test_over_tls_cookies_are_secure_and_of_the_host_only(routed_url: str) -> None:
    async with open_console(routed_url, public_url="https://chat.example") as console:
        async with console.browser(host="chat.example") as browser:
            response = await browser.get(console.link)
            attributes = response.headers["set-cookie"].lower()
            assert attributes.startswith("__host-")
            assert {"secure", "httponly", "path=/"} <= set(attributes.split("; "))
            assert "max-age" in response.headers["strict-transport-security"]
        async with console.browser() as browser:
            assert (await browser.get("/livez")).status_code == 421


async def test_the_headers_of_a_proxy_count_from_its_address_only(
    routed_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**PROXY, "proxy_addresses": "192.0.2.0/24"}
    async with open_console(routed_url, **settings) as console, console.person("ann") as forger:
        with caplog.at_level(logging.WARNING, logger="chatlane_console"):
            refused = await forger.get(
                f"{API}/me", headers={"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
            )
        assert (refused.status_code, refused.json()["code"]) == (403, "wrong_proxy")
        assert "proxy_header_refused" in caplog.messages


async def test_roles_of_a_proxy_decide_who_comes_in(routed_url: str) -> None:
    async with open_console(routed_url, **PROXY, person_role="staff") as console:
        async with console.person("ann", "staff") as ann:
            assert (await ann.get(f"{API}/me")).json()["roles"] == ["person"]
        async with console.person("eve", "staff", "operators") as eve:
            assert (await eve.get(f"{API}/me")).json()["roles"] == ["operator", "person"]
        async with console.person("bob", "others") as bob:
            refused = await bob.get(f"{API}/me")
            assert (refused.status_code, refused.json()["code"]) == (403, "not_admitted")


async def test_a_cookie_signs_nobody_in_behind_a_proxy(console: ConsoleWorld) -> None:
    async with console.browser() as browser:
        assert (await browser.get(console.link)).status_code == 403
        assert (await browser.get(f"{API}/me")).status_code == 401
