"""The checks of ``harbourmaster doctor``, each an async generator of what it finds."""

from __future__ import annotations

from typing import Final

from harbourmaster.cli import oversized, references
from harbourmaster.cli.diagnosis import Check
from harbourmaster.cli.doctor.checks import (
    canary,
    environment,
    features,
    installation,
    permissions,
    registration,
    trust,
    workloads,
)

CHECKS: Final = (
    Check("installation", installation.check, "all parts exist and are ready, and one leads"),
    Check("certificates", trust.check_certificates, "valid, and trusted by every caBundle of ours"),
    Check("configurations", registration.check, "both match the settings"),
    Check("selectors", registration.check_selectors, "our namespace and kube-system are excluded"),
    Check("gates", registration.check_gates, "every namespace that requests gates has them"),
    Check(
        "checks",
        workloads.check_mistakes,
        "no key, target, owner or missing definition skips checks",
    ),
    Check("metrics", features.check_metrics, "every metric has a fresh value, or is about to"),
    Check("waits", workloads.check_waits, "no pod waits for objects that will not come"),
    Check("workloads", workloads.check, "no version is blocked, and pods have what reviews give"),
    Check("definitions", trust.check_definitions, "all kinds are served, and converted by us"),
    Check("rights", permissions.check, "our ServiceAccounts have the permissions that they need"),
    Check("canary", canary.check, "no webhook of ours is registered for pods"),
    Check("other webhooks", canary.check_others, "not tried: our webhooks are not called for pods"),
    Check(
        "policies",
        features.check_policies,
        "all are valid, and each selects at least one namespace",
    ),
    Check("references", references.check, "all that need the consent of a namespace have it"),
    Check("sizes", oversized.check, "no stored object is over the limits for new ones"),
    Check(
        "rescheduling",
        features.check_rescheduling,
        "no add-on lacks what it needs, or rescheduling is off",
    ),
    Check(
        "placement", features.check_placement, "members answer, and applications are ready there"
    ),
    Check("transport", environment.check_transport, "callers must have a certificate"),
    Check("hardening", environment.check_hardening, "no part of deploy/hardened is missing"),
    Check("versions", environment.check_versions, "the API server's version is supported"),
    Check("leftovers", environment.check_leftovers, "nothing of kupid or Keptn"),
)
