"""Timestamps of the Slack for tests: adapters look for a message at the time it was sent."""

from datetime import UTC, datetime, timedelta

import time_machine

from chatlane_devkit.platforms.slack.workspaces import Stamps


def test_a_timestamp_is_the_time_however_old_the_process_is() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    stamps = Stamps()
    with time_machine.travel(began, tick=False) as clock:
        assert began.timestamp() == float(stamps.next_ts())
        clock.shift(timedelta(hours=1))
        assert (began + timedelta(hours=1)).timestamp() == float(stamps.next_ts())


def test_no_two_messages_have_the_same_timestamp() -> None:
    stamps = Stamps()
    with time_machine.travel(datetime(2026, 1, 1, tzinfo=UTC), tick=False):
        given = [stamps.next_ts() for _ in range(3)]
    assert sorted(set(given)) == given
