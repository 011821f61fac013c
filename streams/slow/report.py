"""From a finding of slowness to the incident that tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from schemas.ids import hash64, hex_id
from schemas.incidents import Incident, Node, iso_time
from schemas.records import WAIT
from streams.facts import Facts
from streams.report import Occasion, nodes
from streams.slow.findings import Finding, Measure, Scope, Stage
from streams.slow.patterns import Pattern
from streams.words import Words

WARNING_SHARE: Final = 0.1
"""A job that takes a tenth longer is worth somebody's time today."""
CRITICAL_SHARE: Final = 0.5
"""One that takes twice as long stands still half of the time."""
LAUNCHES_S: Final = 60.0
"""Checkpoints and evaluation take tens of seconds on one rank while all others wait, and come again."""

_STAGES: Final = {
    Stage.LAUNCH: "launches its operations late",
    Stage.STREAM: "starts its kernels late, though its host launches them in time: its GPU has more to do",
    Stage.GPU: "takes late what has arrived: its GPU, or the way to it, is slow",
    Stage.PROXY: "has a proxy thread that answers late, which delays all that it carries",
    Stage.SEND: "sends slowly to all its peers",
    Stage.RECEIVE: "receives slowly from all its peers",
}
_MEASURED: Final = {
    Stage.LAUNCH: "launched later than the others",
    Stage.STREAM: "spent less time in NCCL's kernels than the others, who waited in theirs",
    Stage.GPU: "had data that its GPU did not take",
    Stage.PROXY: "took to flush what had arrived",
    Stage.WIRE: "had sends in the network to {peer}",
}
_DECIDES: Final = {
    Stage.LAUNCH: "a profile of its host code (py-spy record --pid …): data loader, checkpoint, GIL",
    Stage.STREAM: "clocks, power limit and other processes of its GPU (nvidia-smi -q -d PERFORMANCE)",
    Stage.GPU: "clocks and PCIe link of its GPU (nvidia-smi -q -d PERFORMANCE,PCIE)",
    Stage.PROXY: "CPU time and scheduling of NCCL's proxy thread (pidstat -t -p …)",
    Stage.SEND: "errors, speed and other traffic of its NIC (ethtool -S, /sys/class/infiniband)",
    Stage.RECEIVE: "errors, speed and other traffic of its NIC (ethtool -S, /sys/class/infiniband)",
    Stage.WIRE: "retransmits, speed and other traffic of both NICs (ethtool -S), the switch's ports",
}


def slow_incident(
    occasion: Occasion, facts: Facts, finding: Finding, opened_ns: int, pattern: Pattern
) -> Incident:
    """The incident of a finding. `opened_ns`: begin of the first window that showed it, broker time, ns; the
    incident keeps its id as long as that stays the same.
    """
    words = Words(facts, WAIT.empty(0))
    return Incident(
        id=hex_id(hash64("slow", occasion.job_id, occasion.attempt_id, opened_ns, finding.stage.name)),
        job=occasion.job,
        attempt=occasion.attempt,
        kind="slow",
        category=finding.category,
        severity=severity(finding, pattern, (occasion.detected - opened_ns) / 1e9),
        confidence=finding.confidence,
        summary=f"{_who(words, finding)}{_cost(finding, pattern)}.",
        culprits=_nodes(facts, finding, finding.culprits),
        candidates=_nodes(facts, finding, finding.candidates),
        waiting=finding.waiting,
        chain=(),
        evidence=tuple(_measured(words, each) for each in finding.measures),
        ruled_out=(),
        would_decide=tuple(_would_decide(finding)),
        since=iso_time(opened_ns),
        detected=iso_time(occasion.detected),
    )


def _nodes(facts: Facts, finding: Finding, devices: Sequence[int]) -> tuple[Node, ...]:
    """With the channel where one alone is slow."""
    channel = finding.measures[0].channel
    return tuple(replace(node, channel=None if channel < 0 else channel) for node in nodes(facts, devices))


def severity(finding: Finding, pattern: Pattern, lasted_s: float) -> str:
    """By what part of its time the job loses.

    Late launches are a notice while they are not known to be more than a checkpoint or an evaluation, which
    look the same: when they were late once, and until they have been so for LAUNCHES_S.
    """
    if finding.stage is Stage.LAUNCH and (lasted_s < LAUNCHES_S or pattern is Pattern.ONCE):
        return "notice"
    if finding.share >= CRITICAL_SHARE:
        return "critical"
    return "warning" if finding.share >= WARNING_SHARE else "notice"


def _who(words: Words, finding: Finding) -> str:
    named = words.devices(finding.named)
    if finding.stage is Stage.WIRE:
        sender, receiver = (words.device(end) for end in (finding.measures[0].dev, finding.measures[0].peer))
        way = "a switch between them" if finding.scope is Scope.SWITCH else "the link"
        return f"What {sender} sends to {receiver} passes slowly: {way}, or the NIC at one end, is slow"
    predicate = _STAGES[finding.stage]
    if finding.candidates:
        return f"One of {named} {predicate}"
    if len(finding.culprits) > 1:
        where = "all of one host, each" if finding.scope is Scope.HOST else "each"
        return f"{_capital(named)}, {where} {predicate}"
    return f"{_capital(named)} {predicate}"


def _cost(finding: Finding, pattern: Pattern) -> str:
    loser = "1 rank loses" if finding.waiting == 1 else f"{finding.waiting} ranks lose"
    each = finding.lost_s / finding.steps
    return (
        f"; {loser} {each:.3g} s a step to it, {finding.share:.0%} of the time, {pattern.value} "
        f"({finding.stolen_per_step_s:.3g} device-seconds a step)"
    )


def _measured(words: Words, measure: Measure) -> str:
    peer = words.device(measure.peer) if measure.peer else "a peer"
    what = _MEASURED[measure.stage].format(peer=peer)
    channel = f" on channel {measure.channel} alone" if measure.channel >= 0 else ""
    return (
        f"{words.device(measure.dev)} {what}{channel}: {measure.own_s:.2f} s, those like it "
        f"{measure.others_s:.2f} s"
    )


def _would_decide(finding: Finding) -> Sequence[str]:
    lines = [_DECIDES[finding.stage]]
    if finding.candidates and finding.stage is Stage.GPU:
        lines.insert(
            0, "the kernel tier shows whose kernels start late; nothing in NCCL shows whose copies are slow"
        )
    if finding.candidates and finding.stage is Stage.WIRE:
        lines.insert(
            0, "flows of these hosts to others: in a ring each has one to send to and one to hear from"
        )
    return lines


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
