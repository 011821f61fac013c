"""Runs every benchmark and prints one table each. Times are of this machine; ratios are of one run."""

from __future__ import annotations

from benchmarks import cold_start, collector, kernels, live, native, store, windows, worker


def main() -> None:
    """All of them, the quick one first."""
    kernels.main()
    windows.main()
    live.main()
    native.main()
    collector.main()
    worker.run(list(worker.SHARES))
    store.run()
    cold_start.main()


if __name__ == "__main__":
    main()
