"""The pod by which ``harbourmaster doctor`` finds out whether the API server asks us, and whom.

It is tried by a dry run, so nothing of it is ever stored, and what it gets selects no node: it is a
policy like any other, merged by the same code, which says the version that answers.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from harbourmaster.api.selectors import LabelSelector
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.model import (
    API_VERSION,
    CLUSTER_POLICY,
    Policy,
    PolicyMetadata,
    PolicySpec,
    Toleration,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.webhook.review import RequestHead

CANARY: Final = "doctor.harbourmaster.dev/canary"
"""Label of the pod that is tried, and key of the toleration that it gets."""
VERSION: Final = "doctor.harbourmaster.dev/version"
"""Key of the node selector that it gets; the value is the version that answered."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 63


def is_canary(request: RequestHead, labels: Mapping[str, str]) -> bool:
    """Whether a pod is one that is only tried; one that would be stored never is."""
    return CANARY in labels and request.dry_run is True


@cache
def canary_policy() -> CompiledPolicy:
    """What such a pod gets besides what policies ask for."""
    spec = PolicySpec(
        namespace_selector=LabelSelector(),
        pod_selector=LabelSelector(match_labels={CANARY: "true"}),
        node_selector={VERSION: our_version()},
        tolerations=[Toleration(key=CANARY, operator="Exists")],
    )
    return compile_policy(
        Policy(API_VERSION, CLUSTER_POLICY, PolicyMetadata(name="doctor-canary"), spec)
    )


@cache
def our_version() -> str:
    """The version of this package, as a label may hold it."""
    try:
        release = version("harbourmaster")
    except PackageNotFoundError:
        release = "unknown"
    return _NO_LABEL.sub("_", release)[:_LONGEST].strip("._-")
