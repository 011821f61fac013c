"""What an agent does when handling one message fails.

A message is never lost to an error of ours: it is tried again, and if that does not help it goes to
`nccl.dead` with the reason. If it cannot even be put there the process ends, before anything was
acknowledged, and its successor reads the message again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from schemas.malformed import Malformed

log = logging.getLogger(__name__)

RETRY_AFTER_S = (0.1, 0.5, 2.0)
"""Long enough for a broker's leader election to pass, short enough for an operator who waits."""


class Unhandled(RuntimeError):
    """A message that could neither be handled nor set aside; the process must end."""


async def guarded(
    handle: Callable[[], Awaitable[None]],
    set_aside: Callable[[str], Awaitable[None]],
    origin: str,
    retry_after_s: tuple[float, ...] = RETRY_AFTER_S,
) -> bool:
    """Run `handle`; returns whether it succeeded.

    Malformed input is not retried and not set aside: the sink, which reads every topic too, does that
    once. Raises Unhandled where setting aside fails as well.
    """
    for pause in (*retry_after_s, None):
        try:
            await handle()
            return True
        except Malformed as error:
            log.warning("%s: %s; left to the sink", origin, error)
            return False
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if pause is not None:
                log.warning("%s: %s; trying again in %s s", origin, reason, pause)
                await asyncio.sleep(pause)
                continue
            log.exception("%s: %s; setting it aside", origin, reason)
    try:
        await set_aside(reason)
    except Exception as error:
        raise Unhandled(f"{origin}: neither handled nor set aside: {error}") from error
    return False
