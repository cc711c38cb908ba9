"""Answers messages with workflows of DBOS, one at a time for each chat."""

import signal
import time
from os import environ

import httpx
from dbos import DBOS
from psycopg_pool import ConnectionPool

from tests.benchmarks.comparison.programs.chat_api import (
    PLATFORM_URL,
    THINK_SECONDS,
    Update,
    answer_to,
)

http = httpx.Client(base_url=PLATFORM_URL, timeout=60, trust_env=False)
pool = ConnectionPool(
    environ["MEMORY_URL"], max_size=10, check=ConnectionPool.check_connection, open=False
)


@DBOS.step(retries_allowed=True, max_attempts=10)
def remember(update: Update) -> int:
    """Store a message once; return how many were stored before it."""
    with pool.connection() as database:
        values = update["chat"], update["message_id"], update["text"]
        database.execute("INSERT INTO heard VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", values)
        query = "SELECT count(*) FROM heard WHERE chat = %s AND message_id <> %s"
        row = database.execute(query, values[:2]).fetchone()
        return row[0] if row else 0


@DBOS.step()
def think() -> None:
    """Take the time of a model."""
    time.sleep(THINK_SECONDS)


@DBOS.step(retries_allowed=True)
def send(chat: str, text: str) -> None:
    """Send a message to a chat."""
    http.post("/send_message", json={"chat": chat, "text": text}).raise_for_status()


@DBOS.workflow(name="answer")
def answer(update: Update) -> None:
    """Answer a message."""
    known = remember(update)
    think()
    send(update["chat"], answer_to(known, update["message_id"]))


def main() -> None:
    """Answer until killed."""
    DBOS(
        config={
            "name": "agent",
            "system_database_url": environ["DATABASE_URL"],
            "executor_id": environ["EXECUTOR_ID"],
            "application_version": "1",
            "log_level": "WARNING",
        }
    )
    pool.open()
    with pool.connection() as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS heard"
            " (chat text, message_id text, text text, PRIMARY KEY (chat, message_id))"
        )
    DBOS.launch()
    DBOS.register_queue("chats", partition_concurrency=1, polling_interval_sec=0.1)
    signal.pause()


if __name__ == "__main__":
    main()
