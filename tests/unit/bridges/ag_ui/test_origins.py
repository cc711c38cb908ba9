"""Which pages of browsers may send requests to the AG-UI endpoint."""

import httpx
import pytest
from httpx import ASGITransport

from chatlane_bridges.ag_ui.application import create_app
from chatlane_bridges.ag_ui.settings import AgUiSettings
from chatlane_bridges.http.declared_agents import AgentDeclarations

SHOP = "https://shop.example.org"


async def asked_before(settings: AgUiSettings, origin: str) -> httpx.Response:
    """Return the answer to what a browser asks before it sends a request of a page."""
    declared = AgentDeclarations.model_validate(
        {"agents": {"main": {}}, "keys": {"one": {"sha256": "0" * 64, "person": "ann"}}}
    )
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-person",
    }
    transport = ASGITransport(create_app(settings, declared))
    async with httpx.AsyncClient(transport=transport, base_url="http://endpoint") as client:
        return await client.options("/agents/main", headers=headers)


async def test_pages_of_declared_origins_may_send_requests() -> None:
    settings = AgUiSettings(allowed_origins=f"https://chat.example.org, {SHOP}")
    answer = await asked_before(settings, SHOP)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "x-person" in answer.headers["access-control-allow-headers"]


@pytest.mark.parametrize("origins", ["", "https://chat.example.org"])
async def test_other_pages_may_not(origins: str) -> None:
    answer = await asked_before(AgUiSettings(allowed_origins=origins), SHOP)
    assert answer.status_code in {400, 405}
    assert "access-control-allow-origin" not in answer.headers
