"""Broker time by append times."""

from __future__ import annotations

import pytest

from streams.clock import BrokerClock


class Time:
    """A clock that stands still until it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("streams.clock.time.time", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_own_clock_until_a_message_was_read(time: Time) -> None:
    clock = BrokerClock()
    assert clock.now() == 1000.0
    time.now = 1234.0
    assert clock.now() == 1234.0


@pytest.mark.parametrize("offset", [0.0, 3600.0, -3600.0])
def test_offset_of_the_brokers_clock(time: Time, offset: float) -> None:
    clock = BrokerClock()
    clock.observe(time.now + offset)
    assert clock.now() == time.now + offset
    time.now += 10
    assert clock.now() == time.now + offset


def test_the_message_that_was_read_soonest_counts(time: Time) -> None:
    """The broker is 100 s ahead; messages are read 5, 0.5 and 20 s after they were appended."""
    clock = BrokerClock()
    for age in (5.0, 0.5, 20.0):
        time.now += 30
        clock.observe(time.now + 100 - age)
    assert clock.now() == pytest.approx(time.now + 99.5)


def test_a_step_of_a_clock_is_followed(time: Time) -> None:
    clock = BrokerClock()
    clock.observe(time.now + 100)
    for _ in range(64):
        clock.observe(time.now - 50)
    assert clock.now() == pytest.approx(time.now - 50)
