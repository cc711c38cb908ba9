"""`examples/chat_adapter.py` with a made-up platform, over TLS and with the rights of an adapter."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Final

import pytest

from chatlane_client import Answer, NoReply, Reply, Turn, TurnWorker, open_connection
from chatlane_devkit.platforms.scripted.chats import Chat
from chatlane_devkit.platforms.scripted.server import MAX_TEXT, ChatServer, open_chat_server
from chatlane_schemas import Attachment, Button, Part
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.servers.secured_nats import SecuredNats, open_secured_nats
from tests.support.service.installation import CONFIG, Installation
from tests.support.service.processes import Process
from tests.support.service.receipts import until_known

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(180)]

ROOT: Final = Path(__file__).parents[3]
PLATFORM, ACCOUNT = "telegram", "assistant"
VIOLATIONS: Final = ("Violation", "authentication error")
SETTINGS: Final = f"""
[agents.main]
lease = "3s"

[platforms.{PLATFORM}.accounts.{ACCOUNT}]
"""
LONG: Final = " ".join(f"word-{number:05}" for number in range(1900)) + " 🙂" * 52
_numbers: Final = count(1)


class Agent:
    """An agent that answers as a test needs it.

    Attributes:
        heard: What it was given, in order.
        may_end: Set while answers that are shown as they are written may end.
    """

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.may_end = asyncio.Event()
        self.outcome: Answer = "Once upon a time"

    async def answer(self, turn: Turn) -> Answer:
        self.heard.append(turn.text)
        files = sum(len(message.attachments) for message in turn.messages)
        match turn.text:
            case "show":
                photo = Attachment(url="https://files.test/1.png", media_type="image/png")
                return Reply(parts=[Part(text="a photo", attachments=(photo,))])
            case "choose":
                buttons = (Button(label="Red", value="red"), Button(label="Blue", value="blue"))
                return Reply(parts=[Part(text="Which?", buttons=buttons)])
            case "ask":
                choice = await turn.ask("Sure?", ["Yes", "No"], within=timedelta(minutes=1))
                return f"you said {choice.value}"
            case "tell":
                return LONG
            case "write" | "think":
                if turn.text == "write":
                    await turn.delta("Once ")
                    await turn.delta("upon ")
                await self.may_end.wait()
                return self.outcome
            case _:
                pass
        replied = turn.messages[-1].replied
        about = f" about {replied.text}" if replied is not None else ""
        return f"heard {turn.text or f'{files} files'}{about}"


@dataclass
class Company:
    """The secured servers, a router, an adapter, a platform and an agent."""

    nats: SecuredNats
    dsn: str
    platform: ChatServer
    agent: Agent
    router: Process
    adapter: Process

    def new_chat(self, kind: str = "dm") -> Chat:
        return self.platform.chat(f"c{next(_numbers)}", kind)


@pytest.fixture(scope="module")
async def company(
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Company]:
    """Run everything, each part as its own user of NATS; nothing may be refused."""
    directory = tmp_path_factory.mktemp("company")
    config = directory / "chatlane.toml"
    config.write_text(CONFIG + SETTINGS)
    agent = Agent()
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_secured_nats() as nats,
        open_chat_server() as platform,
    ):
        dsn, port = postgres_server.dsn(name), free_port()
        provisioner = Installation(
            directory, nats.url, dsn, port, nats.environment("production/provisioner")
        )
        await provisioner.done("admin", "apply")
        variables = {**nats.environment("production/router"), "CHATLANE_POSTGRES__DSN": dsn}
        variables |= {"CHATLANE_HTTP__PORT": str(port), "CHATLANE_LOG__FORMAT": "json"}
        arguments = ["-m", "chatlane", "router", "--config", str(config)]
        router = Process("router", arguments, directory, **variables)
        adapter = chat_adapter("adapter", directory, nats, platform)
        its = Company(nats, dsn, platform, agent, router, adapter)
        async with working(its):
            router.start()
            adapter.start()
            yield its
            for process in (adapter, router):
                await process.stop()
                assert process.exit_code == 0
        log = nats.server.log_path.read_text("utf-8")
        assert [line for line in log.splitlines() if any(it in line for it in VIOLATIONS)] == []


def chat_adapter(name: str, directory: Path, nats: SecuredNats, platform: ChatServer) -> Process:
    """Return the example as a process that is not started."""
    variables = {
        "NATS_URL": nats.url,
        "PRINCIPAL": "telegram-assistant",
        "NKEY_SEED_FILE": str(nats.seed_file("production/telegram-assistant")),
        "TLS_CA_FILE": str(nats.ca_file),
        "PLATFORM": PLATFORM,
        "ACCOUNT": ACCOUNT,
        "CHAT_URL": platform.url,
        "PATH": os.environ["PATH"],
    }
    return Process(name, [str(ROOT / "examples" / "chat_adapter.py")], directory, **variables)


@asynccontextmanager
async def working(company: Company) -> AsyncIterator[None]:
    """Run the agent as its user."""
    user = "main-worker"
    async with open_connection(
        company.nats.url,
        name=user,
        principal=user,
        nkey_seed_file=str(company.nats.seed_file(f"production/{user}")),
        tls_ca_file=str(company.nats.ca_file),
    ) as client:
        worker = TurnWorker(client, "main", company.agent.answer, slots=8, principal=user)
        serving = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await serving


async def test_a_message_is_answered_in_its_chat(company: Company) -> None:
    chat = company.new_chat()
    company.platform.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])


async def test_topics_are_conversations_of_their_own(company: Company) -> None:
    chat = company.new_chat("forum")
    for topic in ("7", "8"):
        company.platform.write(chat, f"hello {topic}", topic=topic)
    await eventually(lambda: len(chat.said) == 2)
    places = {(it.topic, it.text) for it in chat.shown.values() if it.sender == "bot"}
    assert places == {("7", "heard hello 7"), ("8", "heard hello 8")}


async def test_an_edit_changes_what_the_agent_reads(company: Company) -> None:
    chat = company.new_chat()
    company.agent.may_end.clear()
    company.platform.write(chat, "think")
    await eventually(lambda: chat.typing)
    waiting = company.platform.write(chat, "helo")
    company.platform.rewrite(chat, waiting, "hello edited")
    await eventually(lambda: company.platform.confirmed >= company.platform.newest_update)
    company.agent.may_end.set()
    await eventually(lambda: chat.said[-1:] == ["heard hello edited"])
    assert "helo" not in company.agent.heard


async def test_photos_go_both_ways(company: Company) -> None:
    chat = company.new_chat()
    company.platform.write(chat, None, photos=["https://files.test/2.png"])
    await eventually(lambda: chat.said == ["heard 1 files"])
    company.platform.write(chat, "show")
    await eventually(lambda: chat.said[1:] == ["a photo"])
    assert list(chat.shown.values())[-1].photos == ["https://files.test/1.png"]


async def test_an_album_is_a_single_message_for_the_agent(company: Company) -> None:
    chat = company.new_chat()
    for number in range(3):
        company.platform.write(chat, None, photos=[f"https://files.test/{number}.png"], album="a1")
    await eventually(lambda: chat.said == ["heard 3 files"])


async def test_a_reply_brings_the_message_that_it_answers(company: Company) -> None:
    chat = company.new_chat()
    first = company.platform.write(chat, "the first")
    await eventually(lambda: chat.said == ["heard the first"])
    answer = list(chat.shown.values())[-1]
    assert answer.reply_to == first.id
    await until_known(company.dsn, answer.id)
    company.platform.write(chat, "why", reply_to=answer.id)
    await eventually(lambda: chat.said[1:] == ["heard why about heard the first"])


async def test_a_pressed_button_is_answered(company: Company) -> None:
    chat = company.new_chat()
    company.platform.write(chat, "choose")
    await eventually(lambda: chat.said == ["Which?"])
    card = list(chat.shown.values())[-1]
    assert [it["label"] for it in card.buttons] == ["Red", "Blue"]
    company.platform.press(chat, card, "Blue")
    await eventually(lambda: len(chat.said) == 2)
    answer = list(chat.shown.values())[-1]
    assert "blue" in (answer.text or "").lower()
    assert answer.reply_to == card.id


async def test_a_question_loses_its_buttons_with_its_answer(company: Company) -> None:
    chat = company.new_chat()
    company.platform.write(chat, "ask")
    await eventually(lambda: chat.said == ["Sure?"])
    card = list(chat.shown.values())[-1]
    assert [it["label"] for it in card.buttons] == ["Yes", "No"]
    company.platform.press(chat, card, "Yes")
    await eventually(lambda: chat.said == ["Sure?", "you said Yes"])
    await eventually(lambda: card.buttons == [])


async def test_typing_is_shown_in_the_topic_while_the_agent_works(company: Company) -> None:
    chat = company.new_chat("forum")
    company.agent.may_end.clear()
    company.platform.write(chat, "think", topic="9")
    await eventually(lambda: chat.typing == ["9"])
    company.agent.may_end.set()
    await eventually(lambda: chat.said == ["Once upon a time"])


async def test_an_answer_is_shown_while_it_is_written(company: Company) -> None:
    chat = company.new_chat()
    company.agent.may_end.clear()
    company.platform.write(chat, "write")
    await eventually(lambda: chat.said == ["Once upon "])
    company.agent.may_end.set()
    await eventually(lambda: chat.said == ["Once upon a time"])


async def test_a_draft_without_an_answer_disappears(company: Company) -> None:
    chat = company.new_chat()
    company.agent.may_end.clear()
    company.agent.outcome = NoReply()
    company.platform.write(chat, "write")
    await eventually(lambda: chat.said == ["Once upon "])
    company.agent.may_end.set()
    await eventually(lambda: chat.said == [])
    company.agent.outcome = "Once upon a time"


async def test_an_answer_of_21000_characters_comes_in_pieces(company: Company) -> None:
    chat = company.new_chat()
    company.platform.write(chat, "tell")
    await eventually(lambda: len(chat.said) >= 6 and "".join(joined(chat).split()) == words(LONG))
    assert max(len((text or "").encode("utf-16-le")) // 2 for text in chat.said) <= MAX_TEXT
    assert len(LONG) >= 21_000


def joined(chat: Chat) -> str:
    return "".join(text or "" for text in chat.said)


def words(text: str) -> str:
    return "".join(text.split())


async def test_a_limited_chat_waits_as_long_as_the_platform_says(company: Company) -> None:
    chat, other = company.new_chat(), company.new_chat()
    company.platform.limit(chat, 3)
    company.platform.write(chat, "hello")
    await eventually(lambda: chat.calls == 1)
    company.platform.write(other, "hello")
    await eventually(lambda: other.said == ["heard hello"])
    assert chat.said == []
    await eventually(lambda: chat.said == ["heard hello"])
    assert chat.calls <= 3, "the platform is not asked again meanwhile"


async def test_a_person_who_blocks_the_bot_holds_nobody_up(company: Company) -> None:
    chat, other = company.new_chat(), company.new_chat()
    chat.is_blocked = True
    company.platform.write(chat, "hello")
    await eventually(lambda: chat.calls == 1)
    company.platform.write(other, "hello")
    await eventually(lambda: other.said == ["heard hello"])
    chat.is_blocked = False
    company.platform.write(chat, "here again")
    await eventually(lambda: chat.said == ["heard here again"])


@pytest.mark.slow
async def test_a_killed_adapter_goes_on_with_the_piece_that_is_missing(company: Company) -> None:
    chat = company.new_chat()
    chat.stops_after = 2
    company.platform.write(chat, "tell")
    await eventually(lambda: len(chat.texts) == 3)
    await company.adapter.kill()
    # The call of the third piece took effect, and its answer is lost with the process.
    chat.stops_after = None
    chat.answers.set()
    company.adapter.start()
    await eventually(lambda: words(LONG)[-40:] in joined(chat).replace(" ", ""))
    repeated = len(chat.texts) - len(set(chat.texts))
    assert repeated <= 1, "the piece in hand may be shown twice, and no other"
    assert "".join("".join(dict.fromkeys(it or "" for it in chat.texts)).split()) == words(LONG)


async def test_a_killed_router_and_a_killed_adapter_lose_nothing(company: Company) -> None:
    chats = [company.new_chat() for _ in range(6)]
    for number, chat in enumerate(chats):
        company.platform.write(chat, f"hello {number}")
    await eventually(lambda: any(chat.said for chat in chats))
    await company.router.kill()
    await company.adapter.kill()
    for chat in chats:
        company.platform.write(chat, "are you there")
    company.adapter.start()
    company.router.start()
    for number, chat in enumerate(chats):
        await eventually(partial(has_said_last, chat, "are you there"))
        # A turn may answer both messages.
        answers = "\n".join(text or "" for text in dict.fromkeys(chat.texts))
        heard = answers.replace("heard ", "").splitlines()
        assert heard == [f"hello {number}", "are you there"]


@pytest.mark.slow
async def test_a_second_adapter_takes_over_and_keeps_to_the_same_rates(company: Company) -> None:
    """Two processes of one account never send more together than the platform allows."""
    chats = [company.new_chat() for _ in range(3)]
    # The first process delivers before the second one starts.
    await until_heard(company)
    directory = company.adapter.log_path.parent
    other = chat_adapter("second-adapter", directory, company.nats, company.platform)
    other.start()
    try:
        for number in range(8):
            for chat in chats:
                company.platform.write(chat, f"hello {number}")
        await eventually(lambda: all(chat.said for chat in chats))
        await eventually(lambda: "delivery_standby" in other.log_path.read_text("utf-8"))
        await company.adapter.kill()
        for chat in chats:
            company.platform.write(chat, "are you there")
        for chat in chats:
            await eventually(partial(has_said_last, chat, "are you there"))
            # What was in hand may be said twice, and nothing else.
            assert len(chat.texts) - len(set(chat.texts)) <= 1
            pairs = pairwise(chat.called_at)
            assert sum(later - earlier < 0.04 for earlier, later in pairs) <= 2
    finally:
        company.adapter.start()
        await other.stop()
    # It has started before anybody stops it.
    await until_heard(company)


async def until_heard(company: Company) -> None:
    """Wait until an adapter has delivered an answer to a new chat."""
    chat = company.new_chat()
    company.platform.write(chat, "anybody")
    await eventually(lambda: chat.said)


def has_said_last(chat: Chat, words: str) -> bool:
    """Return whether the last answer ends with these words: a turn may answer several messages."""
    return bool(chat.said) and (chat.said[-1] or "").endswith(words)


@pytest.mark.slow
async def test_a_killed_adapter_edits_the_draft_of_the_earlier_one(company: Company) -> None:
    chat = company.new_chat()
    company.agent.may_end.clear()
    company.platform.write(chat, "write")
    await eventually(lambda: chat.said == ["Once upon "])
    await until_known(company.dsn, list(chat.shown)[-1])
    await company.adapter.kill()
    company.agent.may_end.set()
    company.adapter.start()
    await eventually(lambda: chat.said == ["Once upon a time"])
