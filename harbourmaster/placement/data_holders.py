"""Finds manifests that may hold data, which a move to another cluster loses (krake-spec 7.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.placement.brought_kinds import brought_kinds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

DATA_KINDS: Final = frozenset(
    (
        "PersistentVolume.",
        "PersistentVolumeClaim.",
        "VolumeSnapshot.snapshot.storage.k8s.io",
        "VolumeSnapshotContent.snapshot.storage.k8s.io",
    )
)
_CLAIM_FIELDS: Final = frozenset(
    (
        "dataVolume",
        "dataVolumeTemplates",
        "persistentVolumeClaim",
        "persistentVolumeClaimSpec",
        "pvcTemplate",
        "volumeClaimTemplate",
        "volumeClaimTemplates",
    )
)
"""Fields that claim volumes, in Kubernetes' own kinds and in those of operators."""
_NO_DATA_FIELDS: Final = frozenset(("ephemeral", "openAPIV3Schema"))
"""Fields without data: a generic ephemeral volume ends with its pod, a schema only describes."""
STATELESS_KINDS: Final = frozenset(
    (
        "*.config.gatekeeper.sh",
        "*.constraints.gatekeeper.sh",
        "*.external-secrets.io",
        "*.keda.sh",
        "*.kupid.gardener.cloud",
        "*.kyverno.io",
        "*.lifecycle.keptn.sh",
        "*.metrics.keptn.sh",
        "*.networking.istio.io",
        "*.policies.kyverno.io",
        "*.projectcontour.io",
        "*.security.istio.io",
        "*.telemetry.istio.io",
        "*.templates.gatekeeper.sh",
        "*.traefik.io",
        "Alert.notification.toolkit.fluxcd.io",
        "AlertmanagerConfig.monitoring.coreos.com",
        "AnalysisTemplate.argoproj.io",
        "Canary.flagger.app",
        "Certificate.cert-manager.io",
        "CertificateRequest.cert-manager.io",
        "CiliumClusterwideNetworkPolicy.cilium.io",
        "CiliumNetworkPolicy.cilium.io",
        "ClusterAnalysisTemplate.argoproj.io",
        "ClusterIssuer.cert-manager.io",
        "ClusterQueue.kueue.x-k8s.io",
        "GlobalNetworkPolicy.crd.projectcalico.org",
        "Instrumentation.opentelemetry.io",
        "Issuer.cert-manager.io",
        "JobSet.jobset.x-k8s.io",
        "LeaderWorkerSet.leaderworkerset.x-k8s.io",
        "LocalQueue.kueue.x-k8s.io",
        "NetworkPolicy.crd.projectcalico.org",
        "OpenTelemetryCollector.opentelemetry.io",
        "PodMonitor.monitoring.coreos.com",
        "Probe.monitoring.coreos.com",
        "PrometheusRule.monitoring.coreos.com",
        "ResourceFlavor.kueue.x-k8s.io",
        "Rollout.argoproj.io",
        "Route.route.openshift.io",
        "ScrapeConfig.monitoring.coreos.com",
        "SealedSecret.bitnami.com",
        "SecretProviderClass.secrets-store.csi.x-k8s.io",
        "Service.serving.knative.dev",
        "ServiceMonitor.monitoring.coreos.com",
        "VMPodScrape.operator.victoriametrics.com",
        "VMRule.operator.victoriametrics.com",
        "VMServiceScrape.operator.victoriametrics.com",
    )
)
"""Custom resources without data, as KIND.GROUP, or *.GROUP for all kinds of a group."""


class Manifest(Struct, frozen=True, gc=False):
    """The facts of a manifest on which a decision depends; the deployer reads the manifest."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    brings: tuple[str, ...] = ()
    """The kinds that its object brings to the cluster."""
    claims_volumes: bool = False

    @property
    def group(self) -> str:
        """The group of its kind; empty for the core group."""
        return self.api_version.rpartition("/")[0]


def read_manifest(manifest: object) -> Manifest:
    """Return the facts of a manifest, in which users may have written anything."""
    if isinstance(manifest, Manifest):
        return manifest
    if not isinstance(manifest, dict):
        return Manifest()
    metadata = manifest.get("metadata")
    return Manifest(
        api_version=str(manifest.get("apiVersion") or ""),
        kind=str(manifest.get("kind") or ""),
        name=str(metadata.get("name") or "") if isinstance(metadata, dict) else "",
        brings=brought_kinds(manifest),
        claims_volumes=_claims_volumes(manifest),
    )


def holder_of_data(manifests: Iterable[Manifest], stateless: Collection[str]) -> Manifest | None:
    """Return the first manifest that may hold data; None if no manifest may.

    ``stateless`` are kinds without data beside the known ones, as KIND.GROUP or *.GROUP.
    """
    return next((manifest for manifest in manifests if _may_hold(manifest, stateless)), None)


def is_custom(group: str) -> bool:
    """Whether a group is not one of Kubernetes' own."""
    return "." in group and not group.endswith(".k8s.io")


def is_stateful_custom(group: str, kind: str, stateless: Collection[str] = ()) -> bool:
    """Whether an object is a custom resource that is not known to be without data."""
    names = {f"{kind}.{group}", f"*.{group}"}
    is_known = not (names.isdisjoint(STATELESS_KINDS) and names.isdisjoint(stateless))
    return is_custom(group) and not is_known


def _may_hold(manifest: Manifest, stateless: Collection[str]) -> bool:
    return (
        manifest.claims_volumes
        or f"{manifest.kind}.{manifest.group}" in DATA_KINDS
        or is_stateful_custom(manifest.group, manifest.kind, stateless)
    )


def _claims_volumes(manifest: dict[str, Any]) -> bool:
    values: list[Any] = [manifest]
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            for field, part in value.items():
                if not part or not isinstance(part, dict | list) or field in _NO_DATA_FIELDS:
                    continue
                if field in _CLAIM_FIELDS:
                    return True
                values.append(part)
    return False
