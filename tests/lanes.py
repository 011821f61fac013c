"""Two lanes of tests that run side by side: live ones mostly wait, the others compute and yield to them.

With `pytest -n 2` each lane is one process, so that hardly ever two stacks compete for two cores.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_COMPUTING = (
    "test_catalogue.py",
    "test_clickhouse_users.py",
    "test_compose.py",
    "test_embedded_store.py",
    "test_grafana.py",
    "test_migrations.py",
    "test_native.py",
    "test_replay_plugin.py",
    "test_store.py",
    "test_store_at_scale.py",
)
"""Files of tests/integration that start no pipeline; Compose builds images first, for minutes."""
_YIELDING = 10


class _Lanes(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Gives each lane to one process. (Groups by mark rest on what pytest 9 keeps to itself.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _lane(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How tests are divided among processes."""
    return _Lanes(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What computes takes what the live lane leaves."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.setpriority(os.PRIO_PROCESS, 0, _YIELDING if _lane(item.nodeid) == "computing" else 0)


def _lane(nodeid: str) -> str:
    path = PurePath(nodeid.partition("::")[0])
    return "computing" if path.parent.name == "unit" or path.name in _COMPUTING else "live"
