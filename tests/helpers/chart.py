"""The Helm chart that ``make chart`` writes, and what Helm makes of it."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

from harbourmaster.playground.build import HELM, ensure
from helpers.manifests import CLUSTER_WIDE, DEPLOY, VERSION, parsed, render_cache

CHART = DEPLOY / "chart"
# As Python does it for a script.
sys.path.append(str(CHART))
chart, overlays, union = map(importlib.import_module, ("chart", "overlays", "union"))
EXAMPLES = CHART / "examples"
IMAGE = f"harbourmaster:{VERSION}"
KEEP = "helm.sh/resource-policy"
KUBERNETES = "--kube-version=1.36"
"""Without a cluster, Helm takes one of its own version, or a very old one."""
HELMS = ("helm", "helm3")


@functools.cache
def written():
    """The folder of the chart of this checkout, made only if ``deploy/`` has changed."""
    path = render_cache() / "harbourmaster"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder, path.name)
            chart.main(VERSION, IMAGE, made)
            made.rename(path)
    return path


def helm(*arguments, program="helm", kubeconfig="/dev/null"):
    """Run Helm with caches and settings of nobody; nothing but the result is looked at."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "HOME": home,
            "KUBECONFIG": str(kubeconfig),
            "PATH": "/usr/bin:/bin",
        }
        return subprocess.run(
            [ensure(HELM) / program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def templated(*arguments, namespace, program="helm"):
    """The objects that ``helm template`` prints."""
    result = helm(
        "template",
        "harbourmaster",
        written(),
        KUBERNETES,
        f"--namespace={namespace}",
        "--set=namespace.create=true",
        *arguments,
        program=program,
    )
    assert result.returncode == 0, result.stderr
    return list(parsed(result.stdout))


def sorted_objects(found):
    """Objects by kind, namespace and name, without what is Helm's or kustomize's own."""
    objects = {}
    for each in filter(None, found):
        metadata = dict(each["metadata"])
        metadata["annotations"] = {
            key: value for key, value in metadata.get("annotations", {}).items() if key != KEEP
        }
        if each["kind"] in CLUSTER_WIDE:
            metadata.pop("namespace", None)
        key = each["kind"], metadata.get("namespace"), metadata["name"]
        assert key not in objects
        objects[key] = {**each, "metadata": metadata}
    return objects
