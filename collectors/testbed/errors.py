"""What a testbed cannot be made of."""

from __future__ import annotations

from collectors.flight_recorder.errors import BadInput


class BadPlan(BadInput):
    """The plan or a fault cannot be used; the text says which part and why."""


class TestbedError(RuntimeError):
    """The testbed did not do what it should: a process died, something took too long."""

    __test__ = False  # no test class, for pytest
