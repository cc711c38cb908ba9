"""`chatlane demo` and `chatlane dev` as people run them: to the end, to Ctrl-C, to kill -9."""

import json
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane.config.settings import load_settings
from chatlane_console.http.guard import CSRF_HEADER
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from tests.support.command_run import started
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240), pytest.mark.slow]

ReportLine = Callable[[str], None]

INTERRUPTED: Final = 130
ERASED_WITHIN: Final = timedelta(seconds=60)
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


async def test_the_demo_keeps_its_promises_while_everything_is_killed(
    tmp_path: Path, report_line: ReportLine
) -> None:
    async with started(tmp_path, "-m", "chatlane", "demo") as run:
        assert await run.process.wait() == 0, run.text
        assert run.processes() == []
    report = json.loads((tmp_path / "var" / "demo-report.json").read_text("utf-8"))
    assert report["is_good"] is True
    assert all(check["is_kept"] for check in report["checks"])
    assert report["feed"]["accepted"] >= 2000
    assert all(row["seen"] > 0 and row["wrong"] == 0 for row in report["dialogues"].values())
    for words in (
        "router 1 owns 16 of 32 partitions",
        "killed router 1 with SIGKILL",
        "router 2 owns 32 of 32 partitions, ",
        "killed 4 times as well",
        "killed worker 1 with SIGKILL",
        "killed the adapter and one worker of the dialogues with SIGKILL",
        "killed nats-server with SIGKILL",
        "killed postgres with SIGKILL",
        "every accepted message was delivered exactly once and in order",
    ):
        assert words in run.text
    for name, seconds in report["seconds"].items():
        report_line(f"{name}: {seconds:.1f} s")


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [("drop", "told otherwise: "), ("repeat", "doubled: "), ("swap", "inverted: ")],
)
async def test_the_verdict_finds_sabotage(tmp_path: Path, sabotage: str, problem: str) -> None:
    lines = SCENARIO_FILE.read_text("utf-8").splitlines(keepends=True)[:525]
    lines = [line for line in lines if '"cue"' not in line]
    (tmp_path / "feed.jsonl").write_text("".join(lines), "utf-8")
    code = (
        "from pathlib import Path; from chatlane_devkit.demo.demo_run import main; "
        "from chatlane_devkit.demo.sabotage import Sabotage; "
        f"raise SystemExit(main(feed=Path('feed.jsonl'), sabotage=Sabotage({sabotage!r})))"
    )
    async with started(tmp_path, "-c", code) as run:
        assert await run.process.wait() == 1
        assert run.processes() == []
    assert "sabotage: " in run.text
    assert problem in run.text
    assert "the run does not keep its promises" in run.text


async def test_the_demo_can_be_watched_in_a_browser(tmp_path: Path) -> None:
    lines = SCENARIO_FILE.read_text("utf-8").splitlines(keepends=True)[:525]
    (tmp_path / "feed.jsonl").write_text("".join(x for x in lines if '"cue"' not in x), "utf-8")
    code = (
        "from pathlib import Path; from chatlane_devkit.demo.demo_run import main; "
        "raise SystemExit(main(feed=Path('feed.jsonl'), is_watched=True))"
    )
    async with started(tmp_path, "-c", code) as run, httpx.AsyncClient() as browser:
        await run.until_printed("press Enter to begin: ")
        link = run.text.partition("press Enter to begin: ")[2].split()[0]
        browser.base_url = httpx.URL(link).copy_with(path="/", query=None)
        await browser.get(link)
        run.say("")

        async def has_conversations() -> bool:
            answer = await browser.get("/api/v1/operator/sessions")
            return bool(answer.json()["sessions"])

        await eventually(has_conversations, timeout=timedelta(seconds=60))
        assert await run.process.wait() == 0, run.text
        assert run.processes() == []


async def test_the_demo_fails_when_a_promise_is_not_kept(tmp_path: Path) -> None:
    """The same few messages, one of which is said to be a copy although it is none."""
    lines = [json.loads(line) for line in SCENARIO_FILE.read_text("utf-8").splitlines()[:12]]
    lines[5] |= {"expect": "duplicate"}
    feed = tmp_path / "feed.jsonl"
    feed.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    code = (
        "from pathlib import Path; from chatlane_devkit.demo.demo_run import main; "
        "raise SystemExit(main(feed=Path('feed.jsonl')))"
    )
    async with started(tmp_path, "-c", code) as run:
        assert await run.process.wait() == 1
        assert run.processes() == []
    assert "does not belong here: " in run.text
    assert "the run does not keep its promises" in run.text
    logs = {path.name for path in (tmp_path / "var" / "demo-logs").iterdir()}
    assert {"router-1.log", "worker-2.log", "subscriber.log", "nats-server.log"} <= logs


async def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    async with started(tmp_path, "-m", "chatlane", "demo") as run:
        await run.until_printed("killed router 1 with SIGKILL")
        run.process.send_signal(signal.SIGINT)
        assert await run.process.wait() == INTERRUPTED
        assert run.processes() == []
        assert list(run.temporary.iterdir()) == []
    assert "interrupted; everything was stopped" in run.text
    assert "Traceback" not in run.text


async def test_kill_9_of_the_demo_leaves_nothing_running(tmp_path: Path) -> None:
    async with started(tmp_path, "-m", "chatlane", "demo") as run:
        await run.until_printed("owns 16 of 32 partitions")
        assert len(run.processes()) >= 8
        run.process.kill()
        await run.until_nothing_is_left()


async def erase_own_data(browser: httpx.AsyncClient) -> None:
    """Ask for the erasure of the signed-in person, and wait for its receipt."""
    answer = await browser.post("/api/v1/erasures", headers={CSRF_HEADER: "1"})
    assert answer.status_code == HTTPStatus.ACCEPTED, answer.text
    path = f"/api/v1/erasures/{answer.json()['id']}"

    async def is_finished() -> bool:
        erasure = (await browser.get(path)).json()
        assert erasure["finished_at"] is not None, erasure
        assert erasure["deleted"]["sessions"] == 1
        return True

    await eventually(is_finished, timeout=ERASED_WITHIN)


async def test_dev_can_be_talked_to_from_its_directory(tmp_path: Path) -> None:
    state = tmp_path / ".chatlane" / "dev.toml"
    async with started(tmp_path, "-m", "chatlane", "dev") as run:
        await run.until_printed("/metrics")
        assert "nats://127.0.0.1:" in run.text
        assert "postgres://chatlane:" in run.text
        assert "chatlane chat --as ann" in run.text
        assert state.stat().st_mode & 0o077 == 0
        async with started(tmp_path, "-m", "chatlane", "chat", "--as", "ann") as chat:
            chat.say("hello there")
            await chat.until_printed("#1 heard: hello there")
        await run.until_printed("main → terminal: #1 heard: hello there")
        async with started(tmp_path, "-m", "chatlane", "sessions") as sessions:
            assert await sessions.process.wait() == 0, sessions.text
            assert "agent:main:terminal:local:dm:ann" in sessions.text
        (link,) = re.findall(r"sign in +(http://\S+)", run.text)
        async with httpx.AsyncClient(base_url=link.partition("/sign-in")[0]) as browser:
            assert (await browser.get(link)).status_code == HTTPStatus.SEE_OTHER
            listed = (await browser.get("/api/v1/sessions")).json()["sessions"]
            assert [session["platform"] for session in listed] == ["terminal"]
            await erase_own_data(browser)
            assert (await browser.get("/api/v1/sessions")).json()["sessions"] == []
        run.process.send_signal(signal.SIGINT)
        assert await run.process.wait() == 0
        assert run.processes() == []
    assert not state.exists()
    assert "ann → terminal: hello there" in run.text
    assert "Traceback" not in run.text


async def test_a_second_dev_in_a_directory_refuses_and_leaves_the_first_one_alone(
    tmp_path: Path,
) -> None:
    state = tmp_path / ".chatlane" / "dev.toml"
    async with started(tmp_path, "-m", "chatlane", "dev", "--no-workers") as first:
        await first.until_printed("/metrics")
        address = state.read_text("utf-8")
        async with started(tmp_path, "-m", "chatlane", "dev") as second:
            assert await second.process.wait() == 1
        assert "another `chatlane dev` runs in this directory" in second.text
        assert state.read_text("utf-8") == address
        first.process.send_signal(signal.SIGINT)
        assert await first.process.wait() == 0
    assert not state.exists()


async def test_dev_without_workers_lets_an_example_answer_with_the_declarations_of_a_file(
    tmp_path: Path,
) -> None:
    declared = tmp_path / "mine.toml"
    declared.write_text(
        '[nats]\nurl = "nats://elsewhere.invalid:4222"\n[router]\npartitions = 8\n'
        f'[erasure]\nkey = "{"k" * 32}"\n'
        '[agents.pirate]\n[profiles.default]\nagent = "pirate"\n[platforms.terminal.accounts.local]\n'
    )
    arguments = ("dev", "--no-workers", "--config", str(declared))
    async with started(tmp_path, "-m", "chatlane", *arguments) as run:
        await run.until_printed("/metrics")
        assert "owns 4 of 8 partitions" in run.text
        address = load_settings(tmp_path / ".chatlane" / "dev.toml", {}).nats.url
        assert address in run.text
        environment = {"NATS_URL": address, "AGENT": "pirate"}
        async with (
            started(tmp_path, str(EXAMPLES / "worker.py"), environment=environment) as worker,
            started(tmp_path, "-m", "chatlane", "chat", "--as", "ann") as chat,
        ):
            chat.say("hello there")
            await chat.until_printed("pirate> You said: hello there (after 0 earlier messages)")
            chat.say("again")
            await chat.until_printed("pirate> You said: again (after 2 earlier messages)")
            assert chat.text.count("pirate> ") == 2
            worker.process.send_signal(signal.SIGINT)
            assert await worker.process.wait() == 0
        run.process.send_signal(signal.SIGINT)
        assert await run.process.wait() == 0


@pytest.mark.slow
async def test_a_person_chats_with_a_bot_of_the_emulated_telegram(tmp_path: Path) -> None:
    async with started(tmp_path, "-m", "chatlane", "dev", "--telegram-emulator") as run:
        await run.until_printed("You are Ann")
        run.say("hello there")
        await run.until_printed("bot> #1 heard: hello there")
        run.process.send_signal(signal.SIGINT)
        assert await run.process.wait() == 0
        assert run.processes() == []
    assert "Traceback" not in run.text
