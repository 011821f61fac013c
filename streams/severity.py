"""How loud an incident is: by what it is, how sure that is, how long it lasts, and how long a step takes.

A rank that does not launch may be writing a checkpoint, a GPU that does not progress may be busy with what
NCCL does not show: both are a notice at first and rise with time, and neither before a training step could
have ended. What cannot come right by itself is critical at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from mycroft.settings import Settings
from streams.findings import Finding

SEVERITIES = ("notice", "warning", "critical")
"""From quiet to loud."""
AT_ONCE = frozenset({"process-dead", "process-stopped", "deadlock", "host-silent"})
"""None of these goes on by itself."""
WIRES = frozenset({"link", "nic-send", "nic-recv", "proxy"})
"""Nothing benign looks like these: steps are there that do not arrive."""
GPUS = frozenset({"gpu-hang"})


@dataclass(frozen=True)
class Rules:
    """Seconds of waiting from which something is a warning and critical, and the same in training steps:
    nothing is louder before both have passed. The reasons stand with the settings.
    """

    late_s: tuple[float, float]
    gpu_s: tuple[float, float]
    wire_s: tuple[float, float]
    steps: tuple[float, float]

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As set."""
        return cls(
            (settings.severity_late_warning_s, settings.severity_late_critical_s),
            (settings.severity_gpu_warning_s, settings.severity_gpu_critical_s),
            (0.0, settings.severity_wire_critical_s),
            (settings.severity_warning_steps, settings.severity_critical_steps),
        )

    def limits(self, finding: Finding, step_s: float) -> tuple[float, float]:
        """Seconds from which a finding is a warning, and critical; `step_s` 0 where no step is known."""
        if finding.category in WIRES or (finding.category in GPUS and finding.confidence == "proven"):
            return self.wire_s  # proven by what it shows: however long a step takes, it does not end
        seconds = self.gpu_s if finding.category in GPUS else self.late_s
        (warning, critical), (few, many) = seconds, self.steps
        return max(warning, few * step_s), max(critical, many * step_s)


def severity(finding: Finding, waited_s: float, step_s: float, rules: Rules) -> str:
    """`notice`, `warning` or `critical`, where others have waited for so long.

    >>> rules = Rules.of(Settings())
    >>> late = Finding("late-launch", "proven", (1,), (), (), ())
    >>> severity(late, 5.0, 1.0, rules), severity(late, 70.0, 1.0, rules), severity(late, 70.0, 60.0, rules)
    ('notice', 'warning', 'notice')
    """
    if finding.category == "mismatch":
        return "warning"
    if finding.category in AT_ONCE:
        return "critical"
    warning, critical = rules.limits(finding, step_s)
    if waited_s >= critical:
        return "critical"
    return "warning" if waited_s >= warning else "notice"
