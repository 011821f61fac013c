"""What a rank runs in one training step, and the text that tells the processes.

A pipeline schedule of all forward passes, then all backward passes; tensor-parallel AllReduces inside, the
experts' all-to-all around their layer; at the end the gradients (ReduceScatter, or AllReduce in trees), the
norm over all ranks, and the new weights (AllGather).
"""

from __future__ import annotations

from collectors.testbed.communicators import Communicator, communicators, coordinates
from collectors.testbed.plan import Plan

NORM_COUNT = 1024
_BATCH_COUNT = 4096


def instructions(plan: Plan, rank: int, groups: list[Communicator]) -> list[str]:
    """The lines of one rank's step (native/testbed/plan.h)."""
    number = {
        group.name.partition("-")[0]: index for index, group in enumerate(groups) if rank in group.members
    }
    _, _, stage = coordinates(plan, rank)
    lines = []
    tp, pp, dp, ep = (number.get(kind) for kind in ("tp", "pp", "dp", "ep"))

    def layer(milliseconds: float) -> None:
        lines.append(f"compute {milliseconds:g}")
        if plan.uneven_ms:
            lines.append(f"uneven {plan.uneven_ms:g}")
        if ep is not None:
            lines.extend([f"alltoall {ep} {plan.ep_count}", "compute 2", f"alltoall {ep} {plan.ep_count}"])
        if tp is not None:
            lines.append(f"coll AllReduce {tp} {plan.tp_count} 0")

    if tp is not None:
        lines.append(f"coll Broadcast {tp} {_BATCH_COUNT} 0")
    for way, milliseconds in ((1, plan.forward_ms), (-1, plan.backward_ms)):
        before, after = stage - way, stage + way
        for _ in range(plan.micro_batches):
            if 0 <= before < plan.pp:
                lines.append(f"recv {pp} {before} {plan.pp_count}")
            layer(milliseconds)
            if 0 <= after < plan.pp:
                lines.append(f"send {pp} {after} {plan.pp_count}")
    norm = f"coll AllReduce {number['world']} {NORM_COUNT} 0"
    share = plan.dp_count // plan.dp
    if dp is None:
        lines.append(norm)
    elif plan.algorithm == "tree":
        lines += [f"coll AllReduce {dp} {plan.dp_count} 0", norm]
    else:
        lines += [f"coll ReduceScatter {dp} {share} 0", norm, f"coll AllGather {dp} {share} 0"]
    return [*lines, *_now_and_then(plan, rank, norm, number.get("rare"))]


def _now_and_then(plan: Plan, rank: int, norm: str, rare: int | None) -> list[str]:
    """What a healthy job does beside its steps."""
    lines = []
    if plan.evaluate_every:
        every = f"every {plan.evaluate_every}"
        lines += [f"{every} uneven {plan.evaluate_ms:g}", f"{every} {norm}"]
    if plan.checkpoint_every and rank == 0:
        lines.append(f"every {plan.checkpoint_every} host {plan.checkpoint_ms:g}")
    if rare is not None:
        lines.append(f"every {plan.rare_every} coll AllReduce {rare} {NORM_COUNT} 0")
    return lines


def plan_text(plan: Plan, job: str, addresses: list[tuple[str, int]]) -> str:
    """The whole job for its processes; `addresses`: where each rank is connected to."""
    groups = communicators(plan)
    lines = [f"channels {plan.channels}", f"slot {plan.slot_bytes}", f"network {plan.network}"]
    for rank, (address, port) in enumerate(addresses):
        lines.append(f"rank {plan.host_of(rank)} {address} {port}")
    for group in groups:
        members = " ".join(map(str, group.members))
        lines.append(f"communicator {group.identity(job):x} {group.name} {group.algorithm} {members}")
    for index, group in enumerate(groups):
        lines.extend(f"pair {index} {a} {b}" for a, b in group.pairs)
    for rank in range(plan.ranks):
        lines += [f"programme {rank}", *instructions(plan, rank, groups)]
    return "\n".join(lines) + "\n"
