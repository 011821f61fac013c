"""A message that cannot be handled is tried again, then set aside, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from schemas.malformed import Malformed
from streams.guard import RETRY_AFTER_S, Unhandled, guarded

PAUSES = (0.0, 0.001)


class Handler:
    """Fails as often as told, then succeeds; remembers what was set aside."""

    def __init__(self, *errors: BaseException, aside: Exception | None = None) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.reasons: list[str] = []
        self._aside = aside

    async def handle(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    async def set_aside(self, reason: str) -> None:
        self.reasons.append(reason)
        if self._aside is not None:
            raise self._aside

    def run(self) -> bool:
        handle: Callable[[], Awaitable[None]] = self.handle
        return asyncio.run(guarded(handle, self.set_aside, "topic 0:7", PAUSES))


def test_what_succeeds_is_done_once() -> None:
    handler = Handler()
    assert handler.run()
    assert (handler.calls, handler.reasons) == (1, [])


@pytest.mark.parametrize("failures", [1, 2])
def test_what_fails_is_tried_again(failures: int) -> None:
    handler = Handler(*[RuntimeError("once")] * failures)
    assert handler.run()
    assert (handler.calls, handler.reasons) == (failures + 1, [])


def test_what_fails_every_time_is_set_aside_with_its_reason() -> None:
    handler = Handler(RuntimeError("one"), KeyError("two"), ValueError("three"))
    assert not handler.run()
    assert handler.calls == len(PAUSES) + 1
    assert handler.reasons == ["ValueError: three"]


def test_malformed_input_is_neither_tried_again_nor_set_aside() -> None:
    handler = Handler(Malformed("magic is 0"))
    assert not handler.run()
    assert (handler.calls, handler.reasons) == (1, [])


def test_malformed_at_a_second_try() -> None:
    handler = Handler(RuntimeError("once"), Malformed("magic is 0"))
    assert not handler.run()
    assert (handler.calls, handler.reasons) == (2, [])


def test_a_message_that_cannot_be_set_aside_ends_the_process() -> None:
    cause = RuntimeError("no broker")
    handler = Handler(*[RuntimeError("x")] * 3, aside=cause)
    with pytest.raises(Unhandled, match="topic 0:7") as caught:
        handler.run()
    assert caught.value.__cause__ is cause
    assert len(handler.reasons) == 1


def test_cancellation_is_no_failure_of_the_message() -> None:
    handler = Handler(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        handler.run()
    assert (handler.calls, handler.reasons) == (1, [])


def test_pauses_grow() -> None:
    assert list(RETRY_AFTER_S) == sorted(RETRY_AFTER_S)
    assert sum(RETRY_AFTER_S) < 10
