"""The manifests of ``deploy/`` as kustomize renders them, and how to look into them."""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from cli.main import _parser
from playground.build import find_kubectl
from policies.decoding import describe
from serving.options import settings_from

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASES = ("default", "with-certmanager")
# The last one renames what the others bring.
COMPONENTS = tuple(
    sorted(
        (path.name for path in (DEPLOY / "components").iterdir()),
        key=lambda name: (name == "gardener", name),
    )
)
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CLUSTER_WIDE = {
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    *CONFIGURATIONS,
}
NAMESPACE = "harbourmaster-system"
VERSION = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)[1]


def kubectl():
    """The path of kubectl."""
    return find_kubectl(Path(sys.executable).parent)


def rendered(base, *components):
    """The YAML of a base with components on top, as an overlay of a user's own would have it."""
    if not components:
        return kustomize(DEPLOY / base)
    with tempfile.TemporaryDirectory() as directory:
        # Bases must be named relative to the overlay.
        deploy = Path(os.path.relpath(DEPLOY, directory))
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [str(deploy / base)],
            "components": [str(deploy / "components" / name) for name in components],
        }
        Path(directory, "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return kustomize(directory)


def kustomize(directory):
    """The YAML that ``kubectl kustomize`` makes of a folder."""
    result = subprocess.run(
        [kubectl(), "kustomize", directory], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    # A deprecated field is told of here only.
    assert not result.stderr, result.stderr
    return result.stdout


@functools.cache
def objects(base="default", *components):
    """The rendered objects, shared by all callers."""
    return tuple(yaml.load_all(rendered(base, *components), yaml.CSafeLoader))


def combinations():
    """Each base alone, with each component, and with all of them; as arguments of ``objects``."""
    for base in BASES:
        yield (base,)
        yield from ((base, component) for component in COMPONENTS)
        yield (base, *COMPONENTS)


def all_pairs():
    """Each base with every pair of components: what two do to each other shows there."""
    for base in BASES:
        for chosen in itertools.combinations(COMPONENTS, 2):
            yield (base, *chosen)


def one(found, kind, name=None):
    """The one object of the kind (and name)."""
    (only,) = [
        each
        for each in found
        if each["kind"] == kind and (name is None or each["metadata"]["name"] == name)
    ]
    return only


def of_kind(found, *kinds):
    """The objects of the kinds."""
    return [each for each in found if each["kind"] in kinds]


def container(deployment):
    """The one container of a Deployment."""
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return only


def settings_of(deployment):
    """The settings that a Deployment's arguments give, by the real parser."""
    given = container(deployment)["args"]
    parser = _parser()
    (commands,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    # The parser takes the beginning of a flag as well, until another flag begins so.
    known = commands.choices[given[0]]._option_string_actions
    assert {flag.partition("=")[0] for flag in given[1:]} <= known.keys()
    arguments = parser.parse_args(given)
    return settings_from(arguments, arguments.settings_type, describe)


def selects(selector, labels):
    """Whether ``matchLabels``, or a Service's plain selector, picks these labels."""
    wanted = selector.get("matchLabels", selector)
    return wanted.items() <= labels.items()
