"""Number of random cases of a property, and whether they differ in each run.

``gate`` is what ``make test`` takes: a share of the cases, the same in every run. ``full`` takes
all of them, other ones each time: ``--hypothesis-profile=full``, repeated by ``--hypothesis-seed``.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

NORMAL = 20_000
DEPTH = int(os.environ.get("HARBOURMASTER_PROPERTY_CASES", NORMAL)) / NORMAL
"""The depth of ``full``; 1 is usual."""
SHARE = 20
TIMEOUT = 0 if DEPTH > 1 else 900

COMMON = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}
settings.register_profile("gate", derandomize=True, max_examples=50, **COMMON)
settings.register_profile("full", derandomize=False, max_examples=100, **COMMON)
settings.load_profile("gate")


def is_full():
    """Whether this run takes all cases; for modules, since an option may choose the profile."""
    # Options of Hypothesis append to the name.
    return settings.get_current_profile_name().startswith("full")


def cases(full, least=25):
    """The number of cases where a full run takes ``full`` ones."""
    if is_full():
        return max(int(full * DEPTH), 1)
    return min(full, max(full // SHARE, least))
