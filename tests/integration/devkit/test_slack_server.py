"""The Slack for tests answers two clients alike: slack-sdk, and plain HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from chatlane_devkit.platforms.slack.server import (
    APP_TOKEN,
    SIGNING_SECRET,
    SlackServer,
    open_slack_server,
)
from chatlane_devkit.platforms.slack.workspaces import Channel, Workspace
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(30)]

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with open_slack_server() as server:
        yield server


@pytest.fixture
def workspace(slack: SlackServer) -> Workspace:
    return slack.workspace("T1")


@pytest.fixture
def channel(workspace: Workspace) -> Channel:
    return workspace.channel("C1")


@pytest.fixture(params=["slack-sdk", "forms"])
async def call(
    request: pytest.FixtureRequest, slack: SlackServer, workspace: Workspace
) -> AsyncIterator[Call]:
    """Call a method, and return its answer or what it refuses."""
    if request.param == "slack-sdk":
        async with aiohttp.ClientSession() as session:
            sdk = AsyncWebClient(
                token=workspace.token, base_url=slack.url, session=session, retry_handlers=[]
            )

            async def with_sdk(method: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
                try:
                    answer = await sdk.api_call(method, json=given)
                except SlackApiError as error:
                    answer = error.response
                return dict(answer.data) if isinstance(answer.data, dict) else {}

            yield with_sdk
        return
    async with httpx.AsyncClient(base_url=slack.url) as http:

        async def with_forms(method: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
            form = {
                name: json.dumps(value) if isinstance(value, dict | list) else value
                for name, value in given.items()
            }
            headers = {"Authorization": f"Bearer {workspace.token}"}
            answer = await http.post(method, data=form, headers=headers)
            found: dict[str, Any] = answer.json()
            return found

        yield with_forms


async def test_a_message_is_posted_changed_found_and_deleted(call: Call, channel: Channel) -> None:
    metadata = {"event_type": "x", "event_payload": {"key": "k1"}}
    posted = await call("chat.postMessage", channel="C1", text="a", metadata=metadata)
    answer = await call(
        "chat.postMessage", channel="C1", text="b", thread_ts=posted["ts"], metadata=metadata
    )
    plain = await call("conversations.history", channel="C1")
    assert [it["ts"] for it in plain["messages"]] == [posted["ts"]]
    assert "event_payload" not in plain["messages"][0]["metadata"]
    found = await call(
        "conversations.replies", channel="C1", ts=posted["ts"], include_all_metadata="true"
    )
    assert [it["ts"] for it in found["messages"]] == [posted["ts"], answer["ts"]]
    assert found["messages"][1]["metadata"] == metadata
    await call("chat.update", channel="C1", ts=answer["ts"], text="c")
    assert channel.answers_shown(posted["ts"]) == ["c"]
    await call("chat.delete", channel="C1", ts=answer["ts"])
    assert channel.answers_shown(posted["ts"]) == []


async def test_a_stream_grows_until_it_is_stopped(
    call: Call, slack: SlackServer, workspace: Workspace, channel: Channel
) -> None:
    root = slack.write(workspace, channel, "hello")
    where = {"channel": "C1", "thread_ts": root.ts}
    refused = await call("chat.startStream", **where, markdown_text="a")
    assert refused["error"] == "missing_recipient_user_id"
    begun = await call(
        "chat.startStream",
        **where,
        markdown_text="a",
        recipient_team_id="T1",
        recipient_user_id="U1",
    )
    stream = {"channel": "C1", "ts": begun["ts"]}
    await call("chat.appendStream", **stream, markdown_text="b")
    assert (await call("chat.update", **stream, text="z"))["error"] == "streaming_state_conflict"
    await call("chat.stopStream", **stream, markdown_text="c")
    assert channel.answers_shown(root.ts) == ["abc"]
    again = await call("chat.appendStream", **stream, markdown_text="d")
    assert again["error"] == "message_not_in_streaming_state"


async def test_refusals_name_their_reason(
    call: Call, workspace: Workspace, channel: Channel
) -> None:
    blocks = [{"type": "markdown", "text": "x" * 12_001}]
    given: list[tuple[dict[str, Any], str]] = [
        ({"channel": "C9", "text": "a"}, "channel_not_found"),
        ({"channel": "C1"}, "no_text"),
        ({"channel": "C1", "text": "a", "thread_ts": "1.0"}, "thread_not_found"),
        ({"channel": "C1", "blocks": blocks}, "msg_blocks_too_long"),
        ({"channel": "C1", "blocks": [{"type": "poem"}]}, "invalid_blocks"),
    ]
    for arguments, error in given:
        assert (await call("chat.postMessage", **arguments))["error"] == error
    channel.limit(5)
    assert (await call("chat.postMessage", channel="C1", text="a"))["error"] == "ratelimited"
    workspace.revoked = "token_revoked"
    assert (await call("auth.test"))["error"] == "token_revoked"


async def test_its_signatures_and_sockets_are_those_of_slack(
    slack: SlackServer, workspace: Workspace, channel: Channel
) -> None:
    verifier = SignatureVerifier(SIGNING_SECRET)
    assert verifier.is_valid_request("{}", slack.deliveries.signature_of("{}"))
    assert not verifier.is_valid_request("{ }", slack.deliveries.signature_of("{}"))
    taken: list[SocketModeRequest] = []

    async def take(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        taken.append(request)
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

    async with aiohttp.ClientSession() as session:
        web = AsyncWebClient(base_url=slack.url, session=session)
        client = SocketModeClient(APP_TOKEN, web_client=web)
        client.socket_mode_request_listeners.append(take)
        await client.connect()  # type: ignore[no-untyped-call]
        await eventually(lambda: slack.deliveries.sockets == 1)
        slack.write(workspace, channel, "hello")
        slack.command(workspace, channel, "/joke", "")
        await eventually(lambda: slack.deliveries.waiting == 0)
        assert [request.type for request in taken] == ["events_api", "slash_commands"]
        assert taken[0].payload["event"]["text"] == "hello"
        await client.close()  # type: ignore[no-untyped-call]
    await asyncio.sleep(0)
