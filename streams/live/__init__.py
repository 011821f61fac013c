"""Watch of running jobs: what hosts tell each second becomes who waits for whom, and why.

`board` remembers what the flushes said, `moment` is one look at it, `stalls` judges the operations that stall
by the rules of `rings`, `trees` and `pairs`, which share what `wires` says of one flow's two ends; `causes`
follows the waits of a whole job to where they end.
"""
