"""How tests are spread over workers: a module stays on one, and so do some modules together."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

INSTALLATIONS = {
    "the first installation": ("test_flow_", "test_why_gates"),
    "the second installation": ("test_gates_security", "test_scenarios_", "test_scheduler_ext"),
}
"""What the names of modules begin with that share a control plane with Harbourmaster in it."""


def group(nodeid):
    """Return what a test goes to a worker with."""
    path = nodeid.partition("::")[0]
    folder, _, name = path.rpartition("/")
    if folder.endswith("tests/cluster"):
        for shared, beginnings in INSTALLATIONS.items():
            if name.startswith(beginnings):
                return shared
    return path


class ByModule(LoadScopeScheduling):
    """Sends a module to one worker; that of xdist by marks does nothing with this pytest."""

    def _split_scope(self, nodeid):
        return group(nodeid)
