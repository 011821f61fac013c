"""Runs ranks with and without the plugin in alternation, and reports. `run.sh` is the way in."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.gpu import loss
from tests.gpu.libraries import Cuda, Failed, Missing, Nccl, find_nccl

MISSING = 77
ROOT = Path(__file__).resolve().parents[2]

SIZES = {16 << 10: 100, 256 << 10: 100, 1 << 20: 60, 8 << 20: 20, 64 << 20: 5}
"""Bytes → repetitions a batch."""
RECORDED = {16 << 10: 20, 1 << 20: 10, 8 << 20: 3}
BATCHES = 3
PAIRS = 6
RUN_S = 150.0
WARM_S = 60.0
"""One run may take so long: a rank that hangs must not eat the budget."""

NETWORK = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_MAX_CTAS": "2",
    "NCCL_DEBUG": "WARN",
}
"""Every step goes through the proxy over a loopback socket, on few channels."""
WAYS: tuple[dict[str, str], ...] = ({}, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
"""A host id for each rank should do; NCCL 2.30 and later may want to be told."""


class Runner:
    """Starts the ranks of one run and waits for them."""

    def __init__(self, asked: argparse.Namespace, deadline: float) -> None:
        self.asked, self.deadline = asked, deadline
        self.way: dict[str, str] = WAYS[0]
        self.shm = Path(tempfile.mkdtemp(prefix="mycroft-gpu-", dir=_memory()))
        self.number = 0

    def close(self) -> None:
        """Removes the plugin's files."""
        shutil.rmtree(self.shm, ignore_errors=True)

    def run(
        self, what: str, sizes: dict[int, int], batches: int, plugin: dict[str, str], limit: float = RUN_S
    ) -> dict[str, Any]:
        """One run of all ranks; raises Failed. `plugin`: variables that load it, none without."""
        self.number += 1
        folder = self.asked.out / f"{self.number:02}-{what}"
        folder.mkdir(parents=True)
        files = self.shm / str(self.number)
        files.mkdir(mode=0o755)
        base = {name: value for name, value in os.environ.items() if not name.startswith("MYCROFT_")}
        base.pop("NCCL_PROFILER_PLUGIN", None)
        base |= {**NETWORK, **self.way, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": _device()}
        if plugin:
            base |= {"MYCROFT_DIR": str(files), "MYCROFT_JOB": "gpu-run", **plugin}
        ranks = []
        for rank in range(self.asked.ranks):
            task = {
                "rank": rank, "nranks": self.asked.ranks, "folder": str(folder), "nccl": self.asked.nccl,
                "cuda": self.asked.cuda, "sizes": sizes, "batches": batches,
            }  # fmt: skip
            own = base | {"NCCL_HOSTID": f"mycroft-gpu-{rank}", "RANK": str(rank), "NODE_RANK": str(rank)}
            if plugin:  # a recording tells hosts apart by it
                own["MYCROFT_HOST"] = f"gpu-{rank}"
            with (folder / f"rank-{rank}.log").open("w") as log:
                command = [sys.executable, "-m", "tests.gpu.rank", json.dumps(task)]
                ranks.append(
                    subprocess.Popen(command, env=own, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
                )
        self._wait(ranks, folder, limit)
        results = [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(len(ranks))]
        wrong = [text for result in results for text in result["wrong"]]
        if wrong:
            raise Failed(f"wrong sums in {folder}: {wrong[0]}")
        made = sum(result["operations"] for result in results)
        found: dict[str, Any] = {"seconds": _slowest(results), "operations": made}
        if plugin:
            found["kept"] = loss.total(files)
            found["complaints"] = loss.complaints(found["kept"], self.asked.ranks, made)
            shutil.rmtree(files)
        return found

    def _wait(self, ranks: list[subprocess.Popen[bytes]], folder: Path, limit: float) -> None:
        until = min(time.monotonic() + limit, self.deadline)
        bad = None
        try:
            while any(rank.poll() is None for rank in ranks):
                if (bad := _failed(ranks)) is not None:
                    break
                if time.monotonic() > until:
                    raise Failed(f"a run took too long: {folder}")
                time.sleep(0.05)
            if bad is None:
                bad = _failed(ranks)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        if bad is not None:
            lines = (folder / f"rank-{bad}.log").read_text(errors="replace").strip().splitlines()
            raise Failed(f"rank {bad} failed: {lines[-1] if lines else 'no output'} ({folder})")


def _failed(ranks: list[subprocess.Popen[bytes]]) -> int | None:
    """The first rank that has ended badly by itself."""
    return next((at for at, rank in enumerate(ranks) if rank.poll()), None)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _device() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def _slowest(results: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Size → seconds of each batch, of the rank that took longest."""
    return {
        size: [max(batch) for batch in zip(*(result["seconds"][size] for result in results), strict=True)]
        for size in results[0]["seconds"]
    }


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s, as nccl-tests count it for AllReduce.

    >>> bus_bandwidth(10**9, 1.0, 4)
    1.5
    """
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


def compare(pairs: list[tuple[dict[str, Any], dict[str, Any]]], ranks: int) -> list[dict[str, float]]:
    """A row a size: bandwidth without and with, their ratio (median, least, most over pairs)."""
    rows = []
    for size in pairs[0][0]["seconds"]:
        speeds = [
            tuple(bus_bandwidth(int(size), statistics.median(run["seconds"][size]), ranks) for run in pair)
            for pair in pairs
        ]
        ratios = [on / off for off, on in speeds]
        rows.append(
            {
                "bytes": int(size),
                "without": statistics.median(off for off, _ in speeds),
                "with": statistics.median(on for _, on in speeds),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return rows


def measure(asked: argparse.Namespace, runner: Runner) -> dict[str, Any]:
    """One recorded run, then the alternation. Raises Failed where not one pair could be run."""
    variables = {"NCCL_PROFILER_PLUGIN": str(asked.plugin)}
    begun = time.monotonic()
    _first(runner)
    longest = time.monotonic() - begun
    recording = runner.run(
        "record",
        RECORDED,
        1,
        {**variables, "MYCROFT_TIER": "kernel", "MYCROFT_RECORD": str(asked.out / "record")},
    )
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    complaints: list[str] = []
    while len(pairs) < asked.pairs and time.monotonic() + 2.5 * longest < runner.deadline:
        started = time.monotonic()
        # with-without, then without-with: what drifts hits both alike.
        order = (False, True) if len(pairs) % 2 == 0 else (True, False)
        runs = {
            loaded: runner.run("with" if loaded else "without", SIZES, BATCHES, variables if loaded else {})
            for loaded in order
        }
        pairs.append((runs[False], runs[True]))
        complaints += runs[True]["complaints"]
        longest = max(longest, (time.monotonic() - started) / 2)
        print(f"pair {len(pairs)} of {asked.pairs} done", file=sys.stderr, flush=True)
    if not pairs:
        raise Failed("no time for a single pair: a larger --budget")
    kept = {name: sum(pair[1]["kept"][name] for pair in pairs) for name in pairs[0][1]["kept"]}
    made = sum(pair[1]["operations"] for pair in pairs)
    return {
        "rows": compare(pairs, asked.ranks), "pairs": len(pairs), "operations": made, "kept": kept,
        "complaints": sorted(set(complaints)), "recording_complaints": recording["complaints"],
        "way": runner.way, "kernel_recorded": recording["kept"]["kernel"] > 0,
    }  # fmt: skip


def _first(runner: Runner) -> None:
    """A short run that warms up and finds how this NCCL takes several ranks on one GPU."""
    for way in WAYS:
        runner.way = way
        try:
            runner.run("warm", {16 << 10: 5}, 1, {}, WARM_S)
        except Failed as error:
            last = error
            continue
        return
    raise last


def merge(folder: Path, into: Path) -> str:
    """The recording as one file, where what that needs is installed; says where it is."""
    command = [sys.executable, "-c", (
        "import sys; from pathlib import Path\n"
        "from collectors.replay.merge import merge; from collectors.replay.trace import write_run\n"
        "write_run(Path(sys.argv[2]).open('wb'), merge(Path(sys.argv[1])))"
    ), str(folder), str(into)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return str(into)
    into.unlink(missing_ok=True)
    return f"{folder} (merge it elsewhere: mycroft record {folder} -o RUN.jsonl.zst)"


def show(report: dict[str, Any]) -> None:
    """The report as text."""
    print(f"{report['gpu']}; NCCL {report['nccl']}; {report['ranks']} ranks; {report['pairs']} pairs")
    print("bus bandwidth in GB/s, and the ratio of pairs: median, least, most")
    print(f"{'bytes':>10}  {'without':>8}  {'with':>8}  {'ratio':>6}  {'least':>6}  {'most':>6}")
    for row in report["rows"]:
        print(
            f"{row['bytes']:>10,}  {row['without']:>8.3f}  {row['with']:>8.3f}  {row['ratio']:>6.3f}  "
            f"{row['least']:>6.3f}  {row['most']:>6.3f}"
        )
    kept = report["kept"]
    print(
        f"loss: {report['operations']:,} operations made, {kept['launched']:,} seen, "
        f"{kept['ended']:,} seen to end, "
        f"{kept['dropped']:,} events dropped; {kept['records']:,} finished records"
    )
    for line in report["complaints"]:
        print(f"LOST: {line}")
    for line in report["recording_complaints"]:
        print(f"in the recorded run: {line}")
    print(f"recording: {report['recording']}")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__)
    made.add_argument(
        "--out", type=Path, help="new folder for report, logs and recording; default: a temporary one"
    )
    made.add_argument("--ranks", type=int, default=2, choices=(2, 3, 4), help="ranks on the one GPU (2)")
    made.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of runs at most ({PAIRS})")
    made.add_argument("--budget", type=float, default=480, help="seconds for everything (480)")
    made.add_argument(
        "--plugin", type=Path, help="the profiler plugin; default: the built one, else it is built"
    )
    made.add_argument(
        "--nccl", help="libnccl.so.2; default: the one that Python packages brought, else the system's"
    )
    made.add_argument("--cuda", default="libcuda.so.1", help=argparse.SUPPRESS)
    made.add_argument(
        "--mps", action="store_true", help="start CUDA MPS for the ranks, so that they share the GPU"
    )
    made.add_argument("--check", action="store_true", help="only say what is missing")
    return made


def main() -> int:
    """Exit status: see run.sh."""
    begun = time.monotonic()
    asked = parser().parse_args()
    asked.nccl = asked.nccl or find_nccl()
    missing = []
    found: dict[str, Any] = {}
    for name, make in (("cuda", lambda: Cuda(asked.cuda)), ("nccl", lambda: Nccl(asked.nccl))):
        try:
            found[name] = make()
        except Missing as error:
            missing.append(str(error))
    if missing:
        for text in missing:
            print(f"cannot run here: {text}", file=sys.stderr)
        return MISSING
    if asked.check:
        return 0
    if asked.plugin is None or not asked.plugin.is_file():
        print("cannot run here: no plugin (--plugin)", file=sys.stderr)
        return MISSING
    asked.plugin = asked.plugin.resolve()
    asked.out = asked.out.resolve() if asked.out else Path(tempfile.mkdtemp(prefix="mycroft-gpu-out-"))
    if asked.out.exists() and any(asked.out.iterdir()):
        print(f"{asked.out} is not empty", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    runner = Runner(asked, begun + asked.budget)
    daemon = _start_mps(asked.out) if asked.mps else False
    try:
        report = measure(asked, runner)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        runner.close()
        if daemon:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
    report |= {"gpu": found["cuda"].name(), "nccl": found["nccl"].name, "ranks": asked.ranks, "mps": daemon}
    report["recording"] = merge(asked.out / "record", asked.out / f"gpu{asked.ranks}.jsonl.zst")
    (asked.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    show(report)
    print(f"all of it: {asked.out}")
    return 1 if report["complaints"] else 0


def _start_mps(out: Path) -> bool:
    """An MPS daemon of our own: ranks run at once, not in time slices. False where it does not start."""
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        folder = out / "mps"
        folder.mkdir(exist_ok=True)
        os.environ[name] = str(folder)
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no MPS ({error}): the ranks share the GPU by time slices", file=sys.stderr)
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            os.environ.pop(name)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
