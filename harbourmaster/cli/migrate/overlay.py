"""The overlay of ``migrate --output yaml``: an installation with the settings that Keptn had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.migrate.plan import target

if TYPE_CHECKING:
    from harbourmaster.cli.migrate.model import Observed

_BASES: Final = {
    "deploy": "default",
    "deploy-beside-keptn": "beside-keptn",
    "deploy-using-certmanager": "with-certmanager",
}
_COMPONENTS: Final = {"metrics.customMetricsApi": ["../components/no-custom-metrics"]}
"""Settings that a component has, together with what belongs to them."""
MARK: Final = "harbourmaster.dev/overlay"
MIGRATED: Final = "migrated"
"""The label that tells who was installed by this overlay, and its value."""
_PATH: Final = "/spec/template/spec/containers/0/args/-"


def overlay(observed: Observed) -> dict[str, Any]:
    """A kustomization for a folder of ``deploy``."""
    components, patches = [], []
    for setting in observed.keptn.settings:
        if setting.key in _COMPONENTS:
            components += _COMPONENTS[setting.key]
            continue
        # Those of the webhook are at the top.
        process = CONTROLLER if "." in setting.key else WEBHOOK
        patch = json.dumps([{"op": "add", "path": _PATH, "value": setting.flag}])
        patches.append({"target": {"kind": "Deployment", "name": process}, "patch": patch})
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../{_BASES[target(observed)]}"],
        "components": components,
        "labels": [{"pairs": {MARK: MIGRATED}}],
        "patches": patches,
    }
