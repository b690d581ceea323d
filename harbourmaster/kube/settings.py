"""Settings of the connection to the API server, the same in every process."""

from __future__ import annotations

from typing import Annotated

from harbourmaster.api.settings import DescribedSettings


class ClusterSettings(DescribedSettings, frozen=True, kw_only=True):
    """The API server and the credentials."""

    kubeconfig: Annotated[
        str | None,
        "kubeconfig file; by default $KUBECONFIG, then the pod's ServiceAccount, then "
        "~/.kube/config",
    ] = None
    context: Annotated[str | None, "context of the kubeconfig; by default its current one"] = None
    service_account_dir: Annotated[
        str, "directory of the ServiceAccount's token, ca.crt and namespace in a pod"
    ] = "/var/run/secrets/kubernetes.io/serviceaccount"
    namespace: Annotated[
        str | None,
        "our own namespace, whose pods admission never changes; by default $POD_NAMESPACE, then "
        "the ServiceAccount's",
    ] = None
