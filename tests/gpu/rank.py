"""One rank: joins, checks a sum, times AllReduces, writes what it measured as JSON. Started by bench.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.gpu.libraries import Cuda, Failed, Nccl, UniqueId

_WAIT_S = 60.0
_WARM = 5


def main(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: rank, nranks, folder, nccl, cuda, sizes (bytes → repetitions a batch), batches.

    Returns `seconds` (size → seconds an operation of each batch), `operations` made in all, `wrong` sums.
    """
    rank, nranks = int(task["rank"]), int(task["nranks"])
    cuda = Cuda(task["cuda"])
    cuda.use()
    nccl = Nccl(task["nccl"])
    comm = nccl.open(_agree(nccl, rank, Path(task["folder"])), nranks, rank)
    stream = cuda.stream()
    sizes = {int(size): int(repetitions) for size, repetitions in task["sizes"].items()}
    largest = max(sizes) // 4
    send, receive = cuda.filled(largest, rank + 1.0), cuda.filled(largest, -1.0)
    made = 0

    def run(count: int, repetitions: int) -> float:
        nonlocal made
        begun = time.perf_counter()
        for _ in range(repetitions):
            nccl.all_reduce(comm, send, receive, count, stream)
        cuda.synchronize(stream)
        made += repetitions
        return (time.perf_counter() - begun) / repetitions

    expected = nranks * (nranks + 1) / 2
    seconds: dict[str, list[float]] = {}
    wrong: list[str] = []
    for size, repetitions in sizes.items():
        count = size // 4
        run(count, _WARM)
        wrong += [
            f"{size} bytes, element {at}: {got} for {expected}"
            for at in (0, count // 2, count - 1)
            if (got := cuda.read(receive, at)) != expected
        ]
        seconds[str(size)] = []
        for _ in range(int(task["batches"])):
            run(1, 1)  # all ranks begin together
            seconds[str(size)].append(run(count, repetitions))
    nccl.close(comm)
    return {"seconds": seconds, "operations": made, "wrong": wrong}


def _agree(nccl: Nccl, rank: int, folder: Path) -> UniqueId:
    """The communicator's id, through a file that rank 0 writes."""
    path = folder / "id"
    if rank == 0:
        identity = nccl.unique_id()
        fresh = folder / "id.new"
        fresh.write_bytes(bytes(identity))
        fresh.rename(path)
        return identity
    deadline = time.monotonic() + _WAIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise Failed("rank 0 gave no id")
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    result = main(given)
    Path(given["folder"], f"result-{given['rank']}.json").write_text(json.dumps(result))
