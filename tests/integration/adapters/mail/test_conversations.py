"""The adapter of mail with a router and an agent: LMTP in, SMTP out."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane_devkit.platforms.mail.server import MailServer, new_message_id, open_mail_server
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.platforms.answering import Agent, working
from tests.support.servers.backends import RunningPostgres, RunningServer, delete_streams
from tests.support.servers.databases import open_database
from tests.support.service.processes import Process, open_service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

_ROOT: Final = Path(__file__).parents[4]
_RUN: Final = "from chatlane_adapters.commands import main; main()"


@dataclass
class App:
    server: MailServer
    agent: Agent
    lmtp_port: int

    async def write(
        self,
        address: str,
        text: str,
        file: bytes | None = None,
        *,
        is_bounce: bool = False,
        **headers: str,
    ) -> tuple[int, str]:
        """Deliver a mail of a person, and return the answer of the adapter and the id of the mail."""
        mail = EmailMessage()
        message_id = new_message_id()
        usual = {"From": address, "To": "desk@shop.test", "Subject": "Order"}
        for name, value in {**usual, "Message_ID": message_id, **headers}.items():
            mail[name.replace("_", "-")] = value
        mail.set_content(text)
        if file is not None:
            mail.add_attachment(file, maintype="text", subtype="csv", filename="list.csv")
        # LMTP is SMTP with another greeting.
        reader, writer = await asyncio.open_connection("127.0.0.1", self.lmtp_port)
        lines = (
            "LHLO test",
            f"MAIL FROM:<{'' if is_bounce else address}>",
            "RCPT TO:<desk@shop.test>",
            "DATA",
            mail.as_bytes().decode().replace("\n", "\r\n") + "\r\n.",
            "QUIT",
        )
        answers: list[str] = [(await reader.readline()).decode()]
        for line in lines:
            writer.write(f"{line}\r\n".encode())
            answer = (await reader.readline()).decode()
            while answer[3:4] == "-":
                answer = (await reader.readline()).decode()
            answers.append(answer)
        writer.close()
        return int(answers[-2][:3]), message_id


@pytest.fixture(scope="module")
async def app(
    shared_nats: RunningServer,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[App]:
    """Run everything once for the tests of this module."""
    await delete_streams(shared_nats.url)
    directory, agent, port = tmp_path_factory.mktemp("mail"), Agent(), free_port()
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_mail_server() as server,
        open_service(
            directory,
            shared_nats.url,
            postgres_server.dsn(name),
            more="[platforms.mail.accounts.desk]",
        ) as service,
        working(shared_nats.url, agent),
    ):
        variables = {
            "CHATLANE_ADAPTER_ACCOUNT": "desk",
            "CHATLANE_ADAPTER_NATS_URL": shared_nats.url,
            "CHATLANE_ADAPTER_ADDRESS": "desk@shop.test",
            "CHATLANE_ADAPTER_LMTP_PORT": str(port),
            "CHATLANE_ADAPTER_SMTP_PORT": str(server.port),
            "CHATLANE_ADAPTER_SMTP_SECURITY": "none",
            "CHATLANE_ADAPTER_MEDIA_URL": str(directory / "media"),
            "PYTHONPATH": str(_ROOT),
        }
        adapter = Process("adapter", ["-c", _RUN, "mail"], directory, **variables)
        await service.until_started(service.router("router 1"))
        adapter.start()
        await adapter.until_logged("mail_served")
        yield App(server, agent, port)
        await adapter.stop()
        assert adapter.exit_code == 0


async def test_a_mail_is_answered_in_its_thread(app: App) -> None:
    person = "ann@x.test"
    code, first = await app.write(person, "hello")
    assert code == 250
    await eventually(lambda: len(app.server.to(person)) == 1)
    [answer] = app.server.to(person)
    assert (answer["Subject"], answer["In-Reply-To"]) == ("Re: Order", first)
    replied = {"In_Reply_To": answer["Message-ID"]}
    references = f"{first} {answer['Message-ID']}"
    await app.write(person, "and now?", References=references, Subject="Re: Order", **replied)
    await eventually(lambda: len(app.server.to(person)) == 2)
    again = app.server.to(person)[1]
    assert again.get_content().strip() == "heard and now?"
    assert again["References"].split()[0] == first


async def test_a_repeated_mail_is_answered_once(app: App) -> None:
    person = "bo@x.test"
    for _ in range(2):
        code, _ = await app.write(person, "hello", Message_ID="<same@x.test>")
        assert code == 250
    await app.write(person, "bye", Message_ID="<other@x.test>")
    await eventually(lambda: len(app.server.to(person)) == 2)
    texts = sorted(mail.get_content() for mail in app.server.to(person))
    assert ["bye" in texts[0], "hello" in texts[1]] == [True, True]


async def test_an_attached_file_reaches_the_agent(app: App) -> None:
    person = "eve@x.test"
    await app.write(person, "look", file=b"a,b")
    await eventually(lambda: len(app.server.to(person)) == 1)
    async with httpx.AsyncClient() as client:
        found = await client.get(app.agent.files[-1] or "")
    assert found.content == b"a,b"


async def test_a_program_gets_no_answer(app: App) -> None:
    await app.write("robot@x.test", "I am away", Auto_Submitted="auto-replied")
    await app.write("cy@x.test", "hello")
    await eventually(lambda: len(app.server.to("cy@x.test")) == 1)
    assert app.server.to("robot@x.test") == []


async def test_a_bounce_is_taken_and_gets_no_answer(app: App) -> None:
    given = len(app.agent.given)
    code, _ = await app.write("mailer-daemon@x.test", "not delivered", is_bounce=True)
    assert code == 250
    await app.write("flo@x.test", "hello")
    await eventually(lambda: len(app.server.to("flo@x.test")) == 1)
    assert app.server.to("mailer-daemon@x.test") == []
    assert len(app.agent.given) == given + 1


async def test_an_unknown_recipient_holds_nobody_up(app: App) -> None:
    app.server.refused.add("gone@x.test")
    await app.write("gone@x.test", "hello")
    await app.write("di@x.test", "hello")
    await eventually(lambda: len(app.server.to("di@x.test")) == 1)
