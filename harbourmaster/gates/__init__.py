"""Deployment gates: which pods wait, under which workload, and when they may go. No I/O."""
