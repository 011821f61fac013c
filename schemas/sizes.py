"""Size classes of operations: powers of two of their payload."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_U32_MAX = 0xFFFF_FFFF


def size_class(size: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Power of two of a payload: c where 2^(c−1) < size ≤ 2^c; 0 for 0 and 1 bytes.

    >>> size_class(np.array([0, 1, 2, 3, 4, 1 << 20], np.uint64)).tolist()
    [0, 0, 1, 2, 2, 20]
    """
    # Splitting keeps each half exact in a double, so the exponent is right at every power of two.
    less = np.where(size > 0, size - np.uint64(1), np.uint64(0))
    high, low = (less >> np.uint64(32)).astype(np.float64), (less & np.uint64(_U32_MAX)).astype(np.float64)
    _, of_high = np.frexp(high)
    _, of_low = np.frexp(low)
    found: npt.NDArray[np.uint8] = np.where(high > 0, of_high + 32, of_low).astype(np.uint8)
    return found
