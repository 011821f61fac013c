"""What commands end with: one home for exit statuses and for the errors that users see as one line.

Errors are known by name: whoever raised one has imported its module, and nobody else should have to.
"""

from __future__ import annotations

import errno

NOTHING_FOUND = 0
FAILED = 1
BAD_INPUT = 2
INCIDENTS_FOUND = 3


class UsageError(ValueError):
    """Something the user gave cannot be used; the text says what, where and what to do."""


OURS = {
    "mycroft.errors.UsageError": BAD_INPUT,
    "mycroft.output.OutputLost": FAILED,
    "mycroft.settings.BadSettings": BAD_INPUT,
    "collectors.flight_recorder.errors.BadInput": BAD_INPUT,
    "collectors.flight_recorder.importer.SendFailed": FAILED,
    "collectors.testbed.errors.TestbedError": FAILED,
    "collectors.hosts.CollectorFailed": FAILED,
    "mycroft.local.processes.ChildError": FAILED,
    "mycroft.local.stack.BrokerDied": FAILED,
    "queries.client.StoreError": FAILED,
    "schemas.migrate.MigrationError": FAILED,
    "streams.kafka.BrokerError": FAILED,
    "streams.notify.alertmanager.BadAddress": BAD_INPUT,
}
"""Module and name of each, and the exit status it means."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def explain(error: BaseException) -> tuple[str, int] | None:
    """The line to print and the exit status, None for an error that is a defect of ours."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}", BAD_INPUT
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{error.strerror}, where the local stack keeps its files (TMPDIR, MYCROFT_DATA)", FAILED
    status = next((OURS[name] for name in names if name in OURS), None)
    return None if status is None else (" ".join(str(error).split()), status)
