"""From nccl.alerts to Alertmanager, which routes to everything else.

`alerts.py` says what Alertmanager is told of an incident, `outbox.py` what to send and when.
`alertmanager.py` sends it, and `loop.py` carries messages between Kafka and these.
"""
