"""Messages are passed on as Faust passes them on, without its tasks where there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from mode import Service

from streams.transport import Rest, Transport


def _rest(begun: Coroutine[Any, Any, Any]) -> Rest:
    return Rest(begun, begun.send(None))


async def _twice(gates: list[asyncio.Event]) -> str:
    for gate in gates:
        await gate.wait()
    return "passed"


async def _for_ever(ended: list[bool]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(True)


def test_it_goes_on_where_it_was() -> None:
    async def run() -> str:
        gates = [asyncio.Event(), asyncio.Event()]
        task = asyncio.ensure_future(_rest(_twice(gates)))
        for gate in gates:
            await asyncio.sleep(0)
            assert not task.done()
            gate.set()
        passed: str = await task
        return passed

    assert asyncio.run(run()) == "passed"


def test_cancelling_reaches_it() -> None:
    ended: list[bool] = []

    async def run() -> None:
        task = asyncio.ensure_future(_rest(_for_ever(ended)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == [True]


def test_its_errors_are_told() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    async def run() -> None:
        await _rest(fails())

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run())


class _Consumer(Transport.Consumer):  # type: ignore[valid-type, misc]
    """Without an app: only waiting is tried."""

    def __init__(self) -> None:
        Service.__init__(self)


def _waited(passing: Coroutine[Any, Any, Any], suspended: bool) -> Any:
    async def run() -> Any:
        suspend, consumer = asyncio.Event(), _Consumer()
        if suspended:
            suspend.set()
        return await asyncio.wait_for(consumer.wait_first(passing, suspend.wait()), 10)

    return asyncio.run(run())


def test_a_message_that_finds_room_is_passed_on() -> None:
    assert _waited(_twice([]), suspended=False).results == ["passed"]


def test_one_that_finds_none_is_passed_on_later() -> None:
    async def later() -> str:
        await asyncio.sleep(0.05)
        return "passed"

    assert _waited(later(), suspended=False).results == ["passed"]


def test_a_rebalance_ends_the_wait_for_room() -> None:
    ended: list[bool] = []
    assert _waited(_for_ever(ended), suspended=True).results == [True]
    assert ended == [True]


def test_what_fails_at_once_is_told() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        _waited(fails(), suspended=False)
