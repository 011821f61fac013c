"""What to do next, by category: for the person on call, before anybody looks deeper."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.incidents import Incident

_STACK = "Take its stack before you kill it: py-spy dump --pid {pid} on {host}."
_CORDON = "If the job cannot wait, drain {host} and start again without it."

_STEPS: dict[str, tuple[str, ...]] = {
    "late-launch": (_STACK, "Look at its data loader, checkpoint and storage: its GPU is not the cause."),
    "in-nccl-call": (
        "Take a native stack: gdb -p {pid} on {host}.",
        "Then restart the job from its checkpoint.",
    ),
    "process-dead": ("Read the end of its log and dmesg on {host}: out of memory, Xid, a signal.", _CORDON),
    "process-stopped": ("Resume it: kill -CONT {pid} on {host}; find out who stopped it.",),
    "host-silent": ("Is {host} reachable, and does its collector run (mycroft doctor there)?", _CORDON),
    "gpu-hang": ("Look for NVRM Xid in dmesg on {host} (nvidia-smi -q for that GPU).", _CORDON),
    "gpu-slow": ("Compare clocks, power and throttling on {host}: nvidia-smi -q -d PERFORMANCE,CLOCK.",),
    "nic-send": ("Look at carrier, errors and retransmits of the NIC on {host} (ethtool -S).", _CORDON),
    "nic-recv": ("Look at carrier, errors and drops of the NIC on {host} (ethtool -S).", _CORDON),
    "link": ("Look at both ends' NICs and the switch's ports between them before you blame a host.",),
    "proxy": ("Take a native stack: gdb -p {pid} on {host}; NCCL's proxy thread stands.",),
    "mismatch": ("Compare the code path of the ranks named with the others': same version, same branch?",),
    "deadlock": ("Order the communicators' operations the same on every rank; a restart only postpones it.",),
    "outside-nccl": (_STACK, "Look for a barrier of another library."),
    "unknown": ("Trace with the profiler plugin (mycroft plugin-path) to see more next time.",),
}

_AFTERWARDS: dict[str, tuple[str, ...]] = {
    "late-launch": (
        "Look at its data loader, checkpoint and storage of that time: its GPU was not the cause.",
    ),
    "in-nccl-call": ("Should it come again: a native stack (gdb) on {host} while it stands.",),
    "process-stopped": ("Find out who stopped process {pid} on {host}: a debugger, a job manager, a shell.",),
    "proxy": ("Should it come again: a native stack (gdb) on {host} while NCCL's proxy thread stands.",),
    "outside-nccl": ("Look for a barrier of another library; should it come again: py-spy dump on {host}.",),
}
"""Where the first step is done to a process that stands: what there is to do once the incident is over."""

CATEGORIES = tuple(_STEPS)


def next_steps(incident: Incident) -> tuple[str, ...]:
    """What to do, with the process and host where all who are named share them."""
    nodes = incident.culprits or incident.candidates
    known = {
        "pid": _only([node.pid for node in nodes], "PID"),
        "host": _only([node.host for node in nodes], "its host"),
    }
    over = incident.state == "closed"
    said = (
        _AFTERWARDS.get(incident.category, _STEPS[incident.category]) if over else _STEPS[incident.category]
    )
    steps = [step.format(**known) for step in said]
    if over:
        return ("It is over. What is left is to find out why.", *steps)
    if not incident.culprits and len(incident.candidates) > 1:
        steps.insert(
            0, "Decide between the candidates first: restarting one by guess may leave the cause in."
        )
    return tuple(steps)


def _only(values: Sequence[object], otherwise: str) -> str:
    """The value that all have."""
    (first, *others) = set(values) or {None}
    return otherwise if others or first is None else str(first)
