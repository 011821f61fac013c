"""Grafana's dashboards, as code: `python -m queries.grafana.build` writes them to dashboards/.

`provisioning/` is what Grafana reads at its start: mount it at /etc/grafana/provisioning and dashboards/ at
/var/lib/grafana/dashboards. A module a dashboard; panels.py knows Grafana's format, they know the questions.
"""
