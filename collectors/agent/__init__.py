"""The host agent: reads what the plugin writes into shared memory and ships it (`mycroft collect`).

One tick's way, a file a step: `discovery` (whose files are there) → `snapshot` and `ring` (what they hold, by
`layout`; nothing in them is trusted) → `identity` (which job, attempt, device) → `stall` (what is in flight,
current, stalled, quiet) → `summarise` and `budget` (what of it is worth sending) → `flush` (messages) →
`backlog` (until Kafka has them). `agent` carries data between them; `metrics` says what all of it did.
"""
