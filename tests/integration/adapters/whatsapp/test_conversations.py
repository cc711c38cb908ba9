"""The adapter of WhatsApp Cloud with a router and an agent."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane_devkit.platforms.whatsapp.server import (
    APP_SECRET,
    NUMBER,
    TEMPLATE,
    TOKEN,
    VERIFY_TOKEN,
    WhatsAppServer,
    open_whatsapp_server,
)
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.platforms.answering import Agent, working
from tests.support.servers.backends import RunningPostgres, RunningServer, delete_streams
from tests.support.servers.databases import open_database
from tests.support.service.processes import Process, open_service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

_PIXEL: Final = bytes.fromhex("89504e470d0a1a0a")
_ROOT: Final = Path(__file__).parents[4]
_RUN: Final = "from chatlane_adapters.commands import main; main()"


@dataclass
class App:
    whatsapp: WhatsAppServer
    agent: Agent
    adapter: Process


@pytest.fixture(scope="module")
async def app(
    shared_nats: RunningServer,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[App]:
    """Run everything once for the tests of this module."""
    await delete_streams(shared_nats.url)
    directory, agent, port = tmp_path_factory.mktemp("whatsapp"), Agent(), free_port()
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_whatsapp_server() as whatsapp,
        open_service(
            directory,
            shared_nats.url,
            postgres_server.dsn(name),
            more="[platforms.whatsapp.accounts.shop]",
        ) as service,
        working(shared_nats.url, agent),
    ):
        whatsapp.webhooks = [f"http://127.0.0.1:{port}/whatsapp"]
        variables = {
            "CHATLANE_ADAPTER_ACCOUNT": "shop",
            "CHATLANE_ADAPTER_NATS_URL": shared_nats.url,
            "CHATLANE_ADAPTER_API_URL": whatsapp.url,
            "CHATLANE_ADAPTER_PHONE_NUMBER_ID": NUMBER,
            "CHATLANE_ADAPTER_ACCESS_TOKEN": TOKEN,
            "CHATLANE_ADAPTER_APP_SECRET": APP_SECRET,
            "CHATLANE_ADAPTER_VERIFY_TOKEN": VERIFY_TOKEN,
            "CHATLANE_ADAPTER_TEMPLATE": TEMPLATE[0],
            "CHATLANE_ADAPTER_TEMPLATE_LANGUAGE": TEMPLATE[1],
            "CHATLANE_ADAPTER_LISTEN_PORT": str(port),
            "CHATLANE_ADAPTER_MEDIA_URL": str(directory / "media"),
            "CHATLANE_ADAPTER_VOICE_COMMAND": '["cat"]',
            "PYTHONPATH": str(_ROOT),
        }
        adapter = Process("adapter", ["-c", _RUN, "whatsapp"], directory, **variables)
        await service.until_started(service.router("router 1"))
        adapter.start()
        await adapter.until_logged("requests_served")
        yield App(whatsapp, agent, adapter)
        await adapter.stop()
        assert adapter.exit_code == 0


async def test_a_message_is_answered(app: App) -> None:
    person = app.whatsapp.person("4901")
    wamid = app.whatsapp.say(person, "hello")
    await eventually(lambda: person.texts == ["heard hello"])
    assert person.shown[0]["context"] == {"message_id": wamid}


async def test_a_chosen_button_is_answered(app: App) -> None:
    person = app.whatsapp.person("4902")
    app.whatsapp.say(person, "choose")
    await eventually(lambda: person.texts == ["Which?"])
    card = person.shown[0]
    assert card["type"] == "interactive"
    reply = {"type": "button_reply", "button_reply": {"id": "blue", "title": "Blue"}}
    app.whatsapp.write(person, type="interactive", interactive=reply, context={"id": card["id"]})
    await eventually(lambda: len(person.shown) == 2)
    assert "blue" in person.texts[1].lower()


async def test_a_file_is_kept_and_a_voice_message_has_words(app: App) -> None:
    person = app.whatsapp.person("4920")
    image = {"id": app.whatsapp.upload(_PIXEL), "mime_type": "image/png", "caption": "look"}
    app.whatsapp.write(person, type="image", image=image)
    await eventually(lambda: person.texts == ["heard look"])
    async with httpx.AsyncClient() as http:
        assert (await http.get(app.agent.files[-1] or "")).content == _PIXEL
    audio = {"id": app.whatsapp.upload(b"call me"), "mime_type": "audio/ogg", "voice": True}
    app.whatsapp.write(person, type="audio", audio=audio)
    await eventually(lambda: person.texts == ["heard look", "heard call me"])


async def test_a_person_with_too_many_messages_waits_and_no_other(app: App) -> None:
    person, other = app.whatsapp.person("4903"), app.whatsapp.person("4904")
    person.refusals = [131056]
    app.whatsapp.say(person, "hello")
    await eventually(lambda: person.calls == 1)
    app.whatsapp.say(other, "hello")
    await eventually(lambda: other.texts == ["heard hello"])
    assert person.texts == []
    await eventually(lambda: person.texts == ["heard hello"])


async def test_a_text_outside_of_the_window_is_sent_as_the_template(app: App) -> None:
    """WhatsApp refuses the first text at once, and the second one later."""
    person = app.whatsapp.person("4909")
    person.refusals = [131047]
    app.whatsapp.say(person, "hello\nthere")
    await eventually(lambda: person.texts == ["heard hello there"])
    assert person.shown[0]["template"]["name"] == TEMPLATE[0]
    app.whatsapp.say(person, "again")
    await eventually(lambda: len(person.shown) == 2)
    for _ in range(2):
        app.whatsapp.report(person, person.shown[1]["id"], "failed", 131047)
    app.whatsapp.say(person, "history")
    await eventually(lambda: len(person.shown) == 4)
    assert [message["type"] for message in person.shown] == ["template", "text", "template", "text"]
    assert person.texts[1] == person.texts[2] == "heard again"
    assert "24 hours" not in person.texts[3]


async def test_the_agent_reads_that_a_template_was_refused_late(app: App) -> None:
    person = app.whatsapp.person("4911")
    app.whatsapp.say(person, "hello")
    await eventually(lambda: person.texts == ["heard hello"])
    repeats = len(app.adapter.events("event_not_stored"))
    person.late_refusals = [132001]
    person.answers.clear()
    app.whatsapp.report(person, person.shown[0]["id"], "failed", 131047)
    # WhatsApp waits no longer for the request, and sends it again.
    await eventually(lambda: len(app.adapter.events("event_not_stored")) > repeats)
    person.answers.set()
    app.whatsapp.say(person, "history")
    await eventually(lambda: "24 hours" in person.texts[-1])
    assert (len(person.shown), person.calls) == (2, 3)


async def test_the_agent_reads_that_the_window_is_closed(app: App) -> None:
    person = app.whatsapp.person("4905")
    person.refusals = [131047]
    app.whatsapp.say(person, "choose")
    await eventually(lambda: person.calls == 1)
    app.whatsapp.say(person, "history")
    await eventually(lambda: any("24 hours" in text for text in person.texts))


async def test_a_failure_that_is_told_later_reaches_the_agent(app: App) -> None:
    person = app.whatsapp.person("4906")
    app.whatsapp.say(person, "hello")
    await eventually(lambda: person.texts == ["heard hello"])
    app.whatsapp.report(person, person.shown[0]["id"], "delivered")
    app.whatsapp.report(person, person.shown[0]["id"], "failed", 131026)
    app.whatsapp.say(person, "history")
    await eventually(lambda: "cannot get messages" in "".join(person.texts))


async def test_a_message_that_is_not_understood_holds_nobody_up(app: App) -> None:
    person = app.whatsapp.person("4908")
    app.whatsapp.write(person, type="text")
    app.whatsapp.say(person, "hello")
    await eventually(lambda: person.texts == ["heard hello"])
    assert app.adapter.events("message_not_understood")


async def test_a_status_that_is_not_understood_holds_nobody_up(app: App) -> None:
    person = app.whatsapp.person("4910")
    app.whatsapp.report_errors(person, "wamid.0", ["refused"])
    app.whatsapp.say(person, "hello")
    await eventually(lambda: person.texts == ["heard hello"])


async def test_typing_is_shown_while_the_agent_works(app: App) -> None:
    person = app.whatsapp.person("4907")
    app.agent.may_end.clear()
    app.whatsapp.say(person, "write")
    await eventually(lambda: "typing" in person.states)
    app.agent.may_end.set()
    await eventually(lambda: person.texts == ["Once upon a time"])


async def test_only_signed_requests_are_taken(app: App) -> None:
    async with httpx.AsyncClient() as client:
        forged = await client.post(
            app.whatsapp.webhooks[0],
            content=b"{}",
            headers={b"X-Hub-Signature-256": b"sha256=\xe9"},
        )
        asked = {"hub.mode": "subscribe", "hub.challenge": "42"}
        right = await client.get(
            app.whatsapp.webhooks[0], params={**asked, "hub.verify_token": VERIFY_TOKEN}
        )
        wrong = await client.get(
            app.whatsapp.webhooks[0], params={**asked, "hub.verify_token": "guess"}
        )
    assert [forged.status_code, right.text, wrong.status_code] == [401, "42", 403]
