"""Decisions about Keptn's kinds: phases, tasks, events, conversion. No I/O."""
