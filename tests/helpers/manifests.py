"""The manifests of ``deploy/`` as kustomize renders them, and how to look into them."""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from harbourmaster.api.decoding import describe
from harbourmaster.cli import program
from harbourmaster.cli.main import parser_of
from harbourmaster.playground.build import find_kubectl
from harbourmaster.serving.options import settings_from

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASES = ("default", "with-certmanager")
INCLUDED = ("account-guard", "guards", "hardened")
"""Components that are in a base, or include others."""
# The last component renames what the others bring.
COMPONENTS = tuple(
    sorted(
        (path.name for path in (DEPLOY / "components").iterdir() if path.name not in INCLUDED),
        key=lambda name: (name == "gardener", name),
    )
)
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CLUSTER_WIDE = {
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
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


@functools.cache
def render_cache():
    """Where rendered manifests are kept: they depend on ``deploy/`` and kubectl alone."""
    state = hashlib.sha256(str(kubectl().stat().st_size).encode())
    # Compiled modules come during the run.
    for path in sorted(
        path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ):
        content = path.read_bytes()
        state.update(f"{path.relative_to(DEPLOY)} {len(content)}\n".encode())
        state.update(content)
    folder = ROOT / "build" / "rendered" / state.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def rendered(base, *components):
    """The YAML of a base with components on top, as an overlay of a user's own would have it."""
    kept = render_cache() / "+".join((base, *components))
    if kept.exists():
        return kept.read_text()
    if components:
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
            text = kustomize(directory)
    else:
        text = kustomize(DEPLOY / base)
    _keep(kept, text)
    return text


def overlay(folder, *components):
    """Write a user's own kustomization of components on the default; return its folder."""
    folder.mkdir()
    away = Path(*[".."] * len(folder.resolve().parts[1:]), *DEPLOY.parts[1:])
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(away / "default")],
        "components": [str(away / "components" / each) for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return folder


def hardened_overlay(folder, *ranges):
    """Write the hardened overlay with these ranges of the API server; return its folder."""
    given = yaml.safe_load((DEPLOY / "hardened/api-server.yaml").read_text())
    given["spec"]["ingress"] = [{"from": [{"ipBlock": {"cidr": one}} for one in ranges]}]
    (folder / "api-server.yaml").write_text(yaml.safe_dump(given))
    text = (DEPLOY / "hardened/kustomization.yaml").read_text()
    deploy = os.path.relpath(DEPLOY, folder)
    (folder / "kustomization.yaml").write_text(text.replace("../", f"{deploy}/"))
    return folder


def _keep(path, text):
    # Another worker may write the same at the same time.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def kustomize(directory):
    """The YAML that ``kubectl kustomize`` makes of a folder."""
    result = subprocess.run(
        [kubectl(), "kustomize", directory], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    # A deprecated field is told of here only.
    assert not result.stderr, result.stderr
    return result.stdout


def overlay_of(page, directory, place=1, count=1):
    """The objects of one of the overlays that a page of the manual shows, made in the directory."""
    text = (ROOT / "docs" / page).read_text()
    examples = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == count
    example = examples[place - 1]
    (directory / "harbourmaster").symlink_to(ROOT)
    (directory / "overlay").mkdir()
    (directory / "overlay/kustomization.yaml").write_text(example)
    return list(parsed(kustomize(directory / "overlay")))


def parsed(text):
    """The objects in YAML of several documents, by the fast parser."""
    return yaml.load_all(text, yaml.CSafeLoader)


@functools.cache
def objects(base="default", *components):
    """The rendered objects, shared by all callers."""
    kept = render_cache() / "+".join((base, *components, "json"))
    if kept.exists():
        return tuple(json.loads(kept.read_text()))
    found = tuple(parsed(rendered(base, *components)))
    _keep(kept, json.dumps(found))
    return found


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


def rights(roles):
    """Verbs and resources of roles, with their groups."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def of_component(found, *components):
    """The roles that a base gives to components of ours."""
    return [
        role
        for role in of_kind(found, "Role", "ClusterRole")
        if role["metadata"]["labels"]["app.kubernetes.io/component"] in components
    ]


def deployment_of(found, name="controller"):
    """The Deployment of one of our processes."""
    return one(found, "Deployment", f"harbourmaster-{name}")


def pod_of(deployment):
    """The spec of a Deployment's pods."""
    return deployment["spec"]["template"]["spec"]


def pod_labels(deployment):
    """The labels of a Deployment's pods."""
    return deployment["spec"]["template"]["metadata"]["labels"]


def container(deployment):
    """The one container of a Deployment."""
    (only,) = pod_of(deployment)["containers"]
    return only


def bound_to(found, role):
    """The names of the accounts that have a role."""
    bindings = of_kind(found, "RoleBinding", "ClusterRoleBinding")
    return [
        subject["name"]
        for binding in bindings
        if binding["roleRef"]["name"] == role
        for subject in binding["subjects"]
    ]


def settings_of(deployment):
    """The settings that a Deployment's arguments give, by the real parser."""
    given = container(deployment)["args"]
    parser = parser_of(program.OWN)
    (commands,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    # The parser takes the beginning of a flag as well, until another flag begins so.
    known = commands.choices[given[0]]._option_string_actions
    assert {flag.partition("=")[0] for flag in given[1:]} <= known.keys()
    arguments = parser.parse_args(given)
    return settings_from(arguments, arguments.settings_type, describe)


def controller_settings(found):
    """The settings of the controller's Deployment."""
    return settings_of(deployment_of(found))


def selects(selector, labels):
    """Whether ``matchLabels``, or a Service's plain selector, picks these labels."""
    wanted = selector.get("matchLabels", selector)
    return wanted.items() <= labels.items()
