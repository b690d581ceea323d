"""The Helm chart that ``make chart`` writes, and what Helm makes of it."""

from __future__ import annotations

import copy
import importlib
import os
import subprocess
import sys
import tempfile
from functools import cache

from harbourmaster.playground.build import HELM, ensure
from helpers.manifests import CLUSTER_WIDE, DEPLOY, VERSION, make_once, parse

CHART = DEPLOY / "chart"
# As Python does it for a script.
sys.path.append(str(CHART))
chart, overlays, schema, union = map(
    importlib.import_module, ("chart", "overlays", "schema", "union")
)
EXAMPLES = CHART / "examples"
IMAGE = f"harbourmaster:{VERSION}"
KEEP = "helm.sh/resource-policy"
HOOK = "helm.sh/hook"
OF_HELM = {
    "app.kubernetes.io/instance": "harbourmaster",
    "app.kubernetes.io/managed-by": "Helm",
    "app.kubernetes.io/version": VERSION,
    "helm.sh/chart": f"harbourmaster-{VERSION}",
}
"""Labels of every object of a release, beside those of the manifests."""
KUBERNETES = "--kube-version=1.36"
"""Without a cluster, Helm takes one of its own version, or a very old one."""
HELMS = ("helm", "helm3")


@cache
def chart_folder():
    """Return the folder of the chart of this checkout."""
    folder = make_once("chart", lambda path: chart.main(VERSION, IMAGE, path / "harbourmaster"))
    return folder / "harbourmaster"


def helm(*arguments, program="helm", kubeconfig="/dev/null"):
    """Run Helm with empty caches and settings; nothing but the result is looked at."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "HOME": home,
            "KUBECONFIG": str(kubeconfig),
            "PATH": "/usr/bin:/bin",
            "GOGC": os.environ.get("GOGC", ""),
        }
        return subprocess.run(
            [ensure(HELM) / program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def template_objects(*arguments, namespace, program="helm"):
    """The objects that ``helm template`` prints."""
    result = helm(
        "template",
        "harbourmaster",
        chart_folder(),
        KUBERNETES,
        f"--namespace={namespace}",
        "--set=namespace.create=true",
        *arguments,
        program=program,
    )
    assert result.returncode == 0, result.stderr
    return list(parse(result.stdout))


def sorted_objects(manifests):
    """Objects by kind, namespace and name, without what is Helm's or kustomize's own."""
    objects = {}
    for manifest in filter(None, manifests):
        obj = copy.deepcopy(manifest)
        metadata = obj["metadata"]
        metadata["annotations"] = {
            key: value for key, value in metadata.get("annotations", {}).items() if key != KEEP
        }
        if HOOK in metadata["annotations"]:
            continue
        templates = [obj["spec"]["template"]["metadata"]] if obj["kind"] == "Deployment" else []
        for labelled in (metadata, *templates):
            labels = labelled.get("labels", {}).items()
            labelled["labels"] = dict(labels - OF_HELM.items())
        if obj["kind"] in CLUSTER_WIDE:
            metadata.pop("namespace", None)
        key = obj["kind"], metadata.get("namespace"), metadata["name"]
        assert key not in objects
        objects[key] = obj
    return objects
