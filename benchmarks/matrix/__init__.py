"""The fault matrix: faults × topologies × networks, each with a known culprit, through the whole pipeline.

`cells` says what is tried, `trial` runs one job on a running stack and breaks it, `score` judges the answer,
`table` prints the result. `python -m benchmarks.matrix --help`.
"""
