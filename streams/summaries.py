"""The one sentence of an incident: who, why, how many wait."""

from __future__ import annotations

from collections.abc import Mapping

from streams.findings import Finding
from streams.words import Words

_VERDICTS = {
    "late-launch": "never launched what the others wait in",
    "gpu-hang": "launched an operation that its peers have finished; its GPU or stream does not progress",
    "host-silent": "left no record, and everything that can be seen waits for it",
    "mismatch": "called an operation differently from the others",
    "process-dead": "died with operations unfinished that others wait in",
    "process-stopped": "is stopped, and others wait for it",
    "in-nccl-call": "called what the others wait in, and NCCL has not launched it",
    "outside-nccl": "have not launched what the others wait in and may wait for one another outside NCCL, or "
    "in an operation of which NCCL shows nothing",
    "deadlock": "launched operations in another order than the others or left one out: all wait in a circle",
    "nic-send": "has data and credit to send and does not send it",
    "nic-recv": "does not receive what is sent to it: a carrier of its host is lost",
    "proxy": "does not post receives that it has room for",
}

_DEAD_NIC = "does not send what others wait for: a carrier of its host is lost"
_LIVE_VERDICTS = {
    "gpu-hang": "holds an operation that its peers wait in; its GPU or stream does not progress",
    "host-silent": "is not heard of any more, and others wait for it",
}


def summary(words: Words, finding: Finding, live: bool = False) -> str:
    """One sentence; `live` where it is about a running job and not about dumps."""
    verdicts = {**_VERDICTS, **(_LIVE_VERDICTS if live else {})}
    waiting = (
        f"; {finding.waiting} rank{'s wait' if finding.waiting > 1 else ' waits'}" if finding.waiting else ""
    )
    if finding.culprits:
        own = words.devices(finding.culprits)
        if finding.category == "link":
            one = len(finding.nodes) == 1
            what = f"The link between {own} does" if one else f"The links of {own} do"
            return f"{what} not deliver what is sent over {'it' if one else 'them'}{waiting}."
        verdict = verdicts[finding.category]
        if finding.category == "nic-send" and finding.facts:
            verdict = _DEAD_NIC
        if len(finding.culprits) > 1:
            verdict = verdict.replace("for it", "for them").replace("its", "their")
        return f"{_capital(own)} {verdict}{waiting}."
    return f"{_undecided(words, finding, verdicts, live)}{waiting}."


def _undecided(words: Words, finding: Finding, verdicts: Mapping[str, str], live: bool) -> str:
    """The summary where only candidates can be named."""
    named = words.devices(finding.candidates)
    several = len(finding.candidates) > 1
    if finding.category == "deadlock":
        return f"{_capital(named)} wait for one another in a circle"
    if finding.category == "unknown" and not several:
        return f"{_capital(named)} launched what others wait in, but something unrecorded holds it"
    if finding.category == "unknown" and len(finding.nodes) == 1:
        return (
            f"One of {named} holds the others: one waits for another of which the records do not tell enough"
        )
    if finding.category == "unknown":
        return f"One of {named} holds the others: all stand in operations that nobody has finished"
    if finding.category == "link":
        return (
            f"The link between {named} does not deliver what is sent over it, or one of its ends does not "
            "serve it"
        )
    if live and several and finding.category == "gpu-hang":
        return f"One of {named} holds the others; nothing that NCCL shows tells them apart"
    if live and several and finding.category == "outside-nccl":
        return f"{_capital(named)} {verdicts[finding.category]}"
    if finding.category == "host-silent":
        which = "which of them is at fault, if any," if several else "whether it is at fault"
        return f"{_capital(named)} left no record; {which} cannot be told"
    if finding.category == "mismatch":
        return f"{_capital(named)} called one operation differently; no majority tells who is right"
    verdict = verdicts[finding.category]
    if not several:
        return f"{_capital(named)} {verdict}, as far as the records go"
    if finding.category == "gpu-hang":
        return (
            f"One or more of {named} have a GPU or stream that does not progress; they cannot be told apart"
        )
    return f"One or more of {named} {verdict}; they cannot be told apart"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
