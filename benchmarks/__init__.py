"""The figures of the README: `python -m benchmarks` (make bench) measures them on this machine."""
