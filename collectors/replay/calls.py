"""The calls of a program as flat tuples: what `program.py` compiles and `child.py` makes.

The first members are

    line, due (ns after the start), code, lines whose calls must have been made before

and then, by code,

    START     slot, context slot, descriptor number, mask bits, ((word in descriptors, slot), …), stale slot
    STOP      slot
    STATE     slot, state, args number or -1 for NULL
    INIT      context slot, number of the communicator's facts
    FINALIZE  context slot, 1 where NCCL unloads the plugin
    MASK      activation mask

Slots are words that all processes share (`board.py`): contexts and handles as the plugin returned them.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Call: TypeAlias = tuple[Any, ...]

START: Final = 0
STOP: Final = 1
STATE: Final = 2
INIT: Final = 3
FINALIZE: Final = 4
MASK: Final = 5

NULL_SLOT: Final = 0
STALE_SLOT: Final = 1  # what stands in a handle that NCCL never set
FIRST_SLOT: Final = 2

ARGS_BYTES: Final = 16
