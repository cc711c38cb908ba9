"""Gaps are counted while somebody waits, and only then."""

from dataclasses import dataclass

import pytest

from chatlane_devkit.demo.answer_gaps import AnswerGaps, Gap


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def silence(clock: Clock) -> AnswerGaps:
    return AnswerGaps(clock)


def test_nobody_who_says_nothing_waits(clock: Clock, silence: AnswerGaps) -> None:
    clock.now = 100.0
    silence.begin()
    clock.now = 100.1
    silence.end(1)
    clock.now = 200.0
    assert silence.gaps == []
    assert silence.longest() == Gap(0.0, 0.0)


def test_a_gap_lasts_from_an_answer_to_the_next_while_others_wait(
    clock: Clock, silence: AnswerGaps
) -> None:
    silence.begin()
    silence.begin()
    silence.begin()
    clock.now = 1.0
    silence.end(1)
    clock.now = 4.0
    silence.begin()
    clock.now = 5.0
    silence.end(2)
    clock.now = 5.5
    silence.end(1)
    assert silence.gaps == [Gap(0.0, 1.0), Gap(1.0, 5.0), Gap(5.0, 5.5)]
    assert silence.longest() == Gap(1.0, 5.0)


def test_the_longest_gap_of_a_span_is_one_that_touches_it(silence: AnswerGaps) -> None:
    silence.gaps = [Gap(0.0, 3.0), Gap(10.0, 11.0), Gap(11.0, 16.0)]
    assert silence.longest(10.5, 10.9).seconds == 1.0
    assert silence.longest(10.5, 11.5).seconds == 5.0
    assert silence.longest(20.0).seconds == 0.0
    assert silence.longest(ended_at=5.0).seconds == 3.0


def test_what_is_answered_without_a_question_waits_for_nothing(
    clock: Clock, silence: AnswerGaps
) -> None:
    clock.now = 9.0
    silence.end(1)
    clock.now = 10.0
    silence.begin()
    clock.now = 12.0
    silence.end(0)
    clock.now = 13.0
    silence.end(1)
    assert silence.gaps == [Gap(10.0, 13.0)]
