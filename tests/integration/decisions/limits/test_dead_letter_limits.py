"""One account's garbage is bounded in the database, and costs no other account a dead letter."""

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from typing import Final

import pytest

from chatlane.decisions.limits.dead_letter_limits import DeadLetterLimits
from chatlane.decisions.unit_of_work import UnitOfWorkFactory
from chatlane.domain.log import LogMessage
from chatlane.maintenance import TableMaintenance
from chatlane.outbox.redrive import NotRetriedError, Retrying
from chatlane.store import dead_letter_shares
from tests.support.worlds.kernel import Kernel, at

pytestmark = pytest.mark.integration

WORDS: Final = b"words of the body"
LETTERS: Final = 5
BODY_BYTES: Final = 4000
OWNERS: Final[dict[str, Sequence[str]]] = {
    "inbound": ("telegram/bot", "telegram/calm"),
    "results": ("main",),
}


milliseconds = count(1).__next__


@pytest.fixture
def limited(kernel: Kernel) -> Kernel:
    """A kernel that keeps five dead letters of one account in an hour, of 4,000 bytes together."""
    return with_limits(kernel)


def with_limits(kernel: Kernel, announced: int = 100) -> Kernel:
    limits = DeadLetterLimits(
        letters=LETTERS,
        body_bytes=BODY_BYTES,
        owners=OWNERS,  # type: ignore[arg-type]
        announced=announced,
    )
    kernel.writer = UnitOfWorkFactory(
        kernel.store,
        kernel.relay,  # type: ignore[arg-type]
        kernel.metrics,
        dead_letter_limits=limits,
    )
    return kernel


def garbage(
    kernel: Kernel, account: str, number: int, clock: str = "09:00", body: bytes = WORDS
) -> list[LogMessage]:
    subject = f"chat.v1.log.3.telegram.{account}.0123456789abcdef"
    times = [at(clock) + timedelta(milliseconds=milliseconds()) for _ in range(number)]
    return [kernel.raw("inbound", 3, subject, body, time) for time in times]


async def never_published(*_arguments: object) -> None:
    pytest.fail("there is nothing of it to publish")


async def kept(kernel: Kernel) -> list[tuple[str, str | None, bytes | None]]:
    """Return subject, detail and body of every letter, in order of the log."""
    rows = await kernel.fetch(
        "SELECT subject, detail, body FROM dead_letters ORDER BY sequence, id"
    )
    return [tuple(row.values()) for row in rows]


async def summaries(kernel: Kernel) -> list[str]:
    rows = await kernel.fetch(
        "SELECT detail FROM dead_letters WHERE body IS NULL ORDER BY stored_at, detail"
    )
    return [row["detail"] for row in rows]


async def test_letters_beyond_the_limit_are_one_summary_without_a_body(limited: Kernel) -> None:
    await limited.decide(garbage(limited, "bot", 3))
    await limited.decide(garbage(limited, "bot", 30))
    await limited.decide(garbage(limited, "bot", 7))
    letters = await kept(limited)
    assert len(letters) == LETTERS + 1
    assert [body for _, _, body in letters].count(WORDS) == LETTERS
    (summary,) = await summaries(limited)
    size = 35 * len(WORDS)
    assert summary == (
        f"telegram/bot: 35 more in this hour were not kept, {size} bytes, sequences 6 to 40"
    )
    announced = await limited.published("DEAD")
    assert len(announced) == LETTERS + 1, "the summary is announced once"
    assert WORDS.decode() not in json.dumps(announced)
    counts = limited.metrics.counts
    assert counts["dead_letters_dropped", "inbound", "telegram/bot"] == 35
    assert counts["dead_letters", "inbound", "not_json"] == 40


async def test_only_the_first_of_an_hour_are_announced(kernel: Kernel) -> None:
    with_limits(kernel, announced=3)
    await kernel.decide([*garbage(kernel, "bot", LETTERS), *garbage(kernel, "calm", 1)])
    assert await kernel.value("SELECT count(*) FROM dead_letters") == LETTERS + 1
    assert len(await kernel.published("DEAD")) == 3 + 1
    await kernel.decide(garbage(kernel, "bot", 2))
    assert len(await kernel.published("DEAD")) == 3 + 1 + 1, "the summary is always announced"


async def test_bytes_count_as_well_as_letters(limited: Kernel) -> None:
    await limited.decide(garbage(limited, "bot", 4, body=b"{" * 1900))
    assert len(await kept(limited)) == 2 + 1
    await limited.decide(garbage(limited, "bot", 1))
    assert len(await kept(limited)) == 3 + 1, "a small one still fits"


async def test_another_account_and_another_hour_have_limits_of_their_own(limited: Kernel) -> None:
    await limited.decide([*garbage(limited, "bot", 9), *garbage(limited, "calm", LETTERS)])
    await limited.decide(garbage(limited, "bot", 9, "10:30"))
    assert [text.split(" more")[0] for text in await summaries(limited)] == [
        "telegram/bot: 4",
        "telegram/bot: 4",
    ]
    rows = await limited.fetch("SELECT subject FROM dead_letters WHERE body IS NOT NULL")
    assert len([row for row in rows if ".calm." in row["subject"]]) == LETTERS
    assert len([row for row in rows if ".bot." in row["subject"]]) == 2 * LETTERS


async def test_accounts_nobody_declared_share_one_limit(limited: Kernel) -> None:
    for number in range(4):
        await limited.decide(garbage(limited, f"made-up-{number}", 2))
    (summary,) = await summaries(limited)
    assert summary.startswith("undeclared: 3 more")


async def test_results_are_bounded_by_agent(limited: Kernel) -> None:
    subject = "chat.v1.rlog.0.main.0196f0a0-0000-7000-8000-000000000000"
    bodies = [f"{number}".encode() for number in range(LETTERS + 2)]
    await limited.decide([limited.raw("results", 0, subject, body, at("09:00")) for body in bodies])
    (summary,) = await summaries(limited)
    assert summary.startswith("main: 2 more")


async def test_a_limit_that_was_reached_is_reached_after_a_restart(limited: Kernel) -> None:
    first = garbage(limited, "bot", LETTERS)
    await limited.decide(first)
    await limited.decide(first)
    assert len([body for _, _, body in await kept(limited) if body]) == LETTERS
    await limited.decide(garbage(limited, "bot", 1))
    assert len(await kept(limited)) == LETTERS + 1


async def test_a_summary_cannot_be_tried_again(limited: Kernel) -> None:
    await limited.decide(garbage(limited, "bot", LETTERS + 1))
    letter = await limited.value("SELECT id FROM dead_letters WHERE body IS NULL")
    with pytest.raises(NotRetriedError):
        await Retrying(limited.store, never_published).retry(letter)


async def test_shares_expire_with_their_letters(limited: Kernel) -> None:
    await limited.decide(garbage(limited, "bot", LETTERS + 1))
    async with limited.store.transaction() as connection:
        assert await dead_letter_shares.list_recent(connection, timedelta(days=36500))
    await TableMaintenance(limited.store.transaction, dead_kept=timedelta(0)).expire_dead_letters()
    assert await limited.value("SELECT count(*) FROM dead_letter_shares") == 0
