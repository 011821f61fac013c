"""Recorded runs of NCCL's profiler callbacks: read, replayed into a plugin, merged from a recording.

`trace.py` (the file) → `program.py` (what each thread calls, and when) → `runner.py` (a process a rank, and
the notes made real) → `child.py` (inside such a process). `abi.py` is the interface they call; `merge.py`
makes a run out of what the plugin recorded.
"""
