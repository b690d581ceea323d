"""The Grafana dashboards of ``deploy/components/monitoring``, written by ``make dashboards``.

Each panel is a few lines here: what it shows, in which unit, and the queries with their legends.
The JSON around it, which is most of a dashboard, is the same for all. Tests keep the files as they
are written, and the queries to the metrics that there are.
"""
