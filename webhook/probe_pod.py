"""The probe pod, by which ``harbourmaster doctor`` checks that the API server calls the webhook.

Doctor creates the pod in a dry run, so it is never stored. The webhook merges a policy into it that
selects no node and contains the version that answers; users know the probe as the check ``canary``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from harbourmaster import __version__
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

PROBE_LABEL: Final = "doctor.harbourmaster.dev/canary"
"""The label of a probe pod, and the key of the toleration that it gets."""
VERSION: Final = "doctor.harbourmaster.dev/version"
"""The key of the node selector that a probe pod gets; the value is the version that answers."""
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 63


def is_probe_pod(request: RequestHead, labels: Mapping[str, str]) -> bool:
    """Return whether a pod is a probe pod; a pod that would be stored never is."""
    return PROBE_LABEL in labels and request.is_dry_run


@cache
def probe_pod_policy() -> CompiledPolicy:
    """Return the policy for probe pods, which applies before all policies of the cluster."""
    spec = PolicySpec(
        namespace_selector=LabelSelector(),
        pod_selector=LabelSelector(match_labels={PROBE_LABEL: "true"}),
        node_selector={VERSION: our_version()},
        tolerations=[Toleration(key=PROBE_LABEL, operator="Exists")],
    )
    return compile_policy(
        Policy(API_VERSION, CLUSTER_POLICY, PolicyMetadata(name="doctor-canary"), spec)
    )


@cache
def our_version() -> str:
    """Return the version of this package as a valid label value."""
    return _NO_LABEL.sub("_", __version__)[:_LONGEST].strip("._-")
