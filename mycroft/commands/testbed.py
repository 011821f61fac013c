"""`mycroft testbed`: a job of real processes that imitate NCCL's host side, with faults on demand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.agent.layout import TIERS
from collectors.jobs import check_job_name
from collectors.testbed.faults import KINDS, Fault
from collectors.testbed.plan import Plan, plan_of, read_plan
from collectors.testbed.testbed import WIRES, Injection, Options, Testbed, host_name
from mycroft.commands.options import Kafka, check_seconds
from mycroft.connections import collector_arguments, settings
from mycroft.errors import UsageError
from mycroft.plugin import plugin_path, program_path
from mycroft.render import console

_POLL_S = 0.1
_TELL_EVERY_S = 5.0


def run_testbed(
    ranks: Annotated[int | None, typer.Option(help="Processes. Default: 4.")] = None,
    ranks_per_host: Annotated[int | None, typer.Option(help="Default: 2.")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel ranks.")] = None,
    pp: Annotated[int | None, typer.Option(help="Pipeline stages.")] = None,
    ep: Annotated[int | None, typer.Option(help="Expert-parallel ranks of a data-parallel group.")] = None,
    network: Annotated[
        str | None, typer.Option(help="sockets, or credits: like InfiniBand. Default: sockets.")
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="ring or tree, of the large AllReduces.")] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME@RANK[:t=S]", help="Repeatable. With a wrong name all of them are listed; see below."
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE.yaml", help="The same and more; options win.")
    ] = None,
    wires: Annotated[
        str, typer.Option(help="What connects hosts: namespaces (as root), loopback or auto.")
    ] = "auto",
    duration: Annotated[
        float, typer.Option(metavar="S", help="End the job after so long, hung or not.")
    ] = 60.0,
    job: Annotated[str, typer.Option(help="Name of the job.")] = "testbed",
    tier: Annotated[str, typer.Option(help="What the plugin traces: ops, flows or kernel.")] = "flows",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Gets a folder for each host. Default: a passing one."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every callback there; see mycroft record.")
    ] = None,
    collectors: Annotated[
        bool, typer.Option("--collectors/--no-collectors", help="One a host, to Kafka; or just the job.")
    ] = True,
    kafka: Kafka = None,
) -> None:
    """Run a training job without GPUs, and break it: real processes, real plugin, checked results.

    Each host has its own folder and its own collector, as on a cluster; start mycroft up first, or run with
    --no-collectors. Faults: NAME@RANK:t=SECONDS or :step=N, further :comm=PREFIX and the fault's own values;
    link-down@HOST-HOST; outside-nccl@RANK,RANK.
    """
    if tier not in TIERS:
        raise UsageError(f"unknown tier {tier!r}: one of {', '.join(TIERS)}")
    if wires not in WIRES:
        raise UsageError(f"unknown wires {wires!r}: one of {', '.join(WIRES)}")
    check_seconds("duration", duration)
    given = {
        "ranks": ranks, "ranks_per_host": ranks_per_host, "tp": tp, "pp": pp, "ep": ep, "network": network,
        "algorithm": algorithm, "faults": fault or None,
    }  # fmt: skip
    chosen = _plan({name: value for name, value in given.items() if value is not None}, plan)
    environment = {} if record is None else {"MYCROFT_RECORD": str(record.resolve())}
    options = Options(
        executable=_there(program_path),
        plugin=_there(plugin_path),
        job=_job(job),
        tier=tier,
        directory=directory.resolve() if directory is not None else None,
        collector=collector_arguments(settings(kafka=kafka)) if collectors else (),
        environment=environment,
        wires=wires,
    )
    _run(Testbed(chosen, options), duration)


def _plan(given: dict[str, Any], path: Path | None) -> Plan:
    return plan_of({**(read_plan(path) if path is not None else {}), **given}, str(path or "the options"))


def _there(where: Any) -> Path:
    try:
        found: Path = where()
    except FileNotFoundError as error:
        raise UsageError(str(error)) from error
    return found


def _job(name: str) -> str:
    try:
        return check_job_name(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _run(bed: Testbed, duration: float) -> None:
    out = console(stderr=True)
    plan = bed.plan
    with bed:
        out.print(
            f"job {bed.options.job}: {plan.ranks} ranks on {plan.hosts} hosts, tp {plan.tp} × pp {plan.pp} × "
            f"dp {plan.dp}, network {plan.network}, {bed.connected_by}, files in {bed.directory}"
        )
        for host in range(plan.hosts):
            pids = [str(bed.pids()[rank]) for rank in plan.ranks_of(host)]
            out.print(f"{host_name(host)}: ranks {plan.ranks_of(host)[0]} to {plan.ranks_of(host)[-1]}, "
                      f"pids {' '.join(pids)}")  # fmt: skip
        waiting = sorted(plan.faults, key=lambda one: one.t or 0)
        told: set[str] = set()
        next_line = 0.0
        while bed.running_s() < duration:
            while waiting and (waiting[0].t or 0) <= bed.running_s():
                bed.inject(waiting.pop(0))
            _tell_faults(bed, told)
            if bed.running_s() >= next_line:
                _tell_progress(bed)
                next_line = bed.running_s() + _TELL_EVERY_S
            time.sleep(_POLL_S)
        _tell_progress(bed)


def _tell_faults(bed: Testbed, told: set[str]) -> None:
    for injection in bed.injections:
        name = str(injection.fault)
        if name in told or bed.happened(injection) is None:
            continue
        told.add(name)
        console(stderr=True).print(
            f"{bed.running_s():6.1f} s  {name}: {_does(injection.fault)}; right answer: {_answer(injection)}"
        )


def _does(fault: Fault) -> str:
    return KINDS[fault.name].does


def _answer(injection: Injection) -> str:
    truth = injection.truth
    where = [f"rank {rank}" for rank in truth.ranks] or [host_name(host) for host in truth.hosts]
    return f"{' or '.join(truth.categories)} at {', '.join(where)}"


def _tell_progress(bed: Testbed) -> None:
    states = bed.states()
    steps = [state.step + 1 for state in states]
    parts = [f"steps {min(steps)} to {max(steps)}" if min(steps) < max(steps) else f"step {min(steps)}"]
    parts += [f"rank {rank} ended ({status})" for rank, status in sorted(bed.exits().items())]
    parts += [
        f"rank {rank}: wrong result, {state.wrong[0]}" for rank, state in enumerate(states) if state.wrong
    ]
    console(stderr=True).print(f"{bed.running_s():6.1f} s  {'; '.join(parts)}")
