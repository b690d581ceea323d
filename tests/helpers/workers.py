"""How tests are spread over workers: a module stays on one, and so do some modules together."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

SHARED = {
    "the first installation": ("test_flow_", "test_sizes", "test_wait", "test_why_gates"),
    "the second installation": (
        "test_gates_security",
        "test_generated_guards",
        "test_references",
        "test_scenarios_",
        "test_scheduler_ext",
    ),
    "the control plane without Harbourmaster": (
        "test_account_guard",
        "test_admission",
        "test_api_script",
        "test_authority",
        "test_client",
        "test_election",
        "test_gate_guard",
        "test_registration",
        "test_scheduler_admission",
    ),
    "the control plane with member clusters": ("test_events", "test_placement_"),
}
"""What the names of modules begin with that use the same, which takes up to a minute to start."""


def group(nodeid):
    """Return what a test goes to a worker with."""
    path = nodeid.partition("::")[0]
    folder, _, name = path.rpartition("/")
    if folder.endswith("tests/cluster"):
        for shared, beginnings in SHARED.items():
            if name.startswith(beginnings):
                return shared
    return path


class ByModule(LoadScopeScheduling):
    """Sends a module to one worker; that of xdist by marks does nothing with this pytest."""

    def _split_scope(self, nodeid):
        return group(nodeid)
