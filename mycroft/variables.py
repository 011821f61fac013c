"""Every environment variable of ours: the home of docs/operators.md's tables.

The plugin's own are declared here and held to native/plugin/settings.cpp by a test; the collector's and the
commands' come from mycroft/settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mycroft.settings import Settings, near

USUAL_DIR = "/dev/shm/mycroft"


@dataclass(frozen=True)
class Variable:
    """A variable, what holds without it, and what it does."""

    name: str
    default: str
    meaning: str


PLUGIN = (
    Variable("MYCROFT_DISABLE", "0", "1: the plugin loads but traces and records nothing"),
    Variable(
        "MYCROFT_DIR",
        USUAL_DIR,
        "folder of the shared-memory files, made if absent; the collector has to look into the same",
    ),
    Variable(
        "MYCROFT_SHM_BYTES", "4M", "size of each process's file, with an optional K, M or G: 256K to 1G"
    ),
    Variable(
        "MYCROFT_TIER", "flows", "what is traced: ops, flows, kernel or idle; can be changed in a running job"
    ),
    Variable(
        "MYCROFT_KERNEL_ANY",
        "0",
        "1: trace kernel channels with any NCCL, also where it is known to be unsafe",
    ),
    Variable("MYCROFT_JOB", "", "name of the job; default: what Slurm, torchrun, … say"),
    Variable("MYCROFT_CHAIN", "", "file or path of the profiler plugin to load behind this one"),
    Variable(
        "MYCROFT_RECORD",
        "",
        "folder that gets every callback as JSON lines, for `mycroft record`; costs time and disk",
    ),
    Variable("MYCROFT_SIGBUS", "1", "0: do not install the handler that survives a truncated file"),
)
"""Read by the plugin, in the training process, at the first communicator."""

PASSED = (
    Variable("MYCROFT_ATTEMPT", "", "name of this start of the job; default: from the launcher's counters"),
    Variable("MYCROFT_NAMESPACE", "", "tells apart jobs of one name; default: POD_NAMESPACE"),
)
"""Set for the training process too; the plugin copies them and the collector reads them there."""

ELSEWHERE = (
    Variable("MYCROFT_CONFIG", "mycroft.toml", "file with the settings below, lower-case and without prefix"),
    Variable("MYCROFT_DATA", "", "where the local stack keeps its store; default: the user's data folder"),
    Variable("MYCROFT_NO_NATIVE", "", "1 while installing: leave the plugin out, where only dumps are read"),
)
"""Read by the commands and the installation, but no settings of mycroft/settings.py."""


OTHERS = frozenset(
    {
        "MYCROFT_ADDRESS", "MYCROFT_SHM",  # of docker-compose.yml
        "MYCROFT_CLICKHOUSE_HOST", "MYCROFT_CLICKHOUSE_PORT",  # of the provisioning of Grafana
        "MYCROFT_CLICKHOUSE_READER", "MYCROFT_CLICKHOUSE_READER_PASSWORD",
        "MYCROFT_SHARED", "MYCROFT_RECORDS", "MYCROFT_HEALTHY_MINUTES", "MYCROFT_FUZZ_CALLS",  # of tests
    }
)  # fmt: skip
"""Read by no command, but no mistake where they are set."""

_TESTS = "MYCROFT_TEST_"
_SERVICE = "_SERVICE_HOST"
"""Kubernetes sets these and _PORT… for each service of the namespace: of one called mycroft-kafka too."""


def settings() -> tuple[Variable, ...]:
    """What the collector and the commands read, from mycroft/settings.py."""
    return tuple(
        Variable(f"MYCROFT_{name.upper()}", _shown(field.default), str(field.description))
        for name, field in Settings.model_fields.items()
    )


def _shown(default: Any) -> str:
    return "" if default is None else str(default)


def table(variables: tuple[Variable, ...]) -> str:
    """The variables as Markdown.

    >>> print(table((Variable("A", "1", "does"), Variable("B", "", "does"))))
    | variable | default | meaning |
    |---|---|---|
    | `A` | `1` | does |
    | `B` |  | does |
    """
    rows = [
        f"| `{one.name}` | {f'`{one.default}`' if one.default else ''} | {one.meaning} |" for one in variables
    ]
    return "\n".join(("| variable | default | meaning |", "|---|---|---|", *rows))


def unknown(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables with our prefix that nothing reads, each with the one that may be meant, or nothing.

    >>> unknown({"MYCROFT_KAFAK": "h:1", "MYCROFT_KAFKA": "h:1", "MYCROFT_X_SERVICE_HOST": "1", "HOME": "/"})
    [('MYCROFT_KAFAK', 'MYCROFT_KAFKA')]
    """
    known = {one.name for one in (*PLUGIN, *PASSED, *ELSEWHERE, *settings())}
    services = tuple(name[: -len(_SERVICE)] for name in environment if name.endswith(_SERVICE))
    linked = tuple(f"{service}_{part}" for service in services for part in ("SERVICE", "PORT"))
    odd = [
        name
        for name in sorted(environment)
        if name.startswith("MYCROFT_")
        and name not in known | OTHERS
        and not name.startswith((_TESTS, *linked))
    ]
    return [(name, near(name, known)) for name in odd]
