"""Keptn's kinds and what becomes of them: phases, tasks, events, conversion. No I/O."""
