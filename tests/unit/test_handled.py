"""What happens to a message around its handler: kept, acknowledged, set aside, or the worker ends first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.malformed import Malformed
from streams import guard
from streams.app import UNHANDLED, handled


class _Event:
    def __init__(self) -> None:
        self.message = SimpleNamespace(topic="nccl.trace", partition=2, offset=7, value=b"payload")
        self.acknowledged = 0

    def ack(self) -> None:
        self.acknowledged += 1


class _Worker:
    def __init__(self, aside_fails: bool = False) -> None:
        self.set_aside: list[tuple[list[Any], str, str]] = []
        self._aside_fails = aside_fails

    async def aside(self, events: list[Any], stage: str, reason: str) -> None:
        if self._aside_fails:
            raise ConnectionError("no broker")
        self.set_aside.append((events, stage, reason))


def _run(worker: _Worker, event: _Event, handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard.guarded, "__defaults__", ((0.0, 0.0),))
    asyncio.run(handled(worker, event, handle))  # type: ignore[arg-type]  # stands in for both


def test_what_is_kept_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    event = _Event()

    async def keep(_: Any) -> bool:
        return True

    _run(_Worker(), event, keep, monkeypatch)
    assert event.acknowledged == 0


def test_what_is_done_with_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    event = _Event()

    async def done(_: Any) -> bool:
        return False

    _run(_Worker(), event, done, monkeypatch)
    assert event.acknowledged == 1


def test_a_passing_error_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    event, worker, tries = _Event(), _Worker(), []

    async def fails_once(_: Any) -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError("leader election")
        return True

    _run(worker, event, fails_once, monkeypatch)
    assert (len(tries), worker.set_aside, event.acknowledged) == (2, [], 0)


def test_an_unexpected_error_puts_the_message_aside_before_it_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event, worker, tries = _Event(), _Worker(), []

    async def fails(_: Any) -> bool:
        tries.append(event.acknowledged)
        raise ZeroDivisionError("a defect of ours")

    _run(worker, event, fails, monkeypatch)
    assert tries == [0, 0, 0]
    assert worker.set_aside == [([event], "nccl.trace", "ZeroDivisionError: a defect of ours")]
    assert event.acknowledged == 1


def test_garbage_is_left_to_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    event, worker = _Event(), _Worker()

    async def garbage(_: Any) -> bool:
        raise Malformed("magic is wrong")

    _run(worker, event, garbage, monkeypatch)
    assert (worker.set_aside, event.acknowledged) == ([], 1)


def test_the_worker_ends_before_it_loses_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    event = _Event()

    class Ended(BaseException):
        pass

    def ended(status: int) -> None:
        assert status == UNHANDLED
        raise Ended

    async def fails(_: Any) -> bool:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr("os._exit", ended)
    with pytest.raises(Ended):
        _run(_Worker(aside_fails=True), event, fails, monkeypatch)
    assert event.acknowledged == 0
