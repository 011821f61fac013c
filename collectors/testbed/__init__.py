"""The testbed: real processes that imitate NCCL's host side around the plugin, and break as they are told.

`plan.py` what to run · `communicators.py` who belongs to whom · `programme.py` a training step ·
`faults.py` what can go wrong · `truth.py` the right answer then · `network.py` the wires between hosts ·
`ranks.py` the training processes · `testbed.py` all of it together. The processes themselves are
`native/testbed`.
"""
