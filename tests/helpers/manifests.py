"""The manifests of ``deploy/`` as kustomize renders them, and how to look into them."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import yaml

from harbourmaster.api.decoding import describe
from harbourmaster.cli import program
from harbourmaster.cli.main import parser_of
from harbourmaster.playground.build import find_kubectl
from harbourmaster.serving.options import settings_from

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASES = ("default", "with-certmanager")
INCLUDED = ("account-guard", "guards", "hardened", "ingress-rules")
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
    """Return the folder of what depends on ``deploy/``, kubectl and this module alone."""
    state = hashlib.sha256(str(kubectl().stat().st_size).encode())
    files = (path for path in DEPLOY.rglob("*") if path.is_file())
    # Compiled modules come during the run.
    for path in sorted(path for path in (Path(__file__), *files) if path.suffix != ".pyc"):
        content = path.read_bytes()
        state.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode())
        state.update(content)
    folder = ROOT / "build" / "rendered" / state.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_once(name, make):
    """Return the path of a file or folder that ``make(path)`` made, once for all processes."""
    # A name of all components would be too long for a file.
    path = render_cache() / hashlib.sha256(name.encode()).hexdigest()[:16]
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder, "made")
                make(made)
                made.rename(path)
    return path


def render(base, *components):
    """Return the YAML of a base with components on top, as a user's own overlay would have it."""

    def make(path):
        path.write_text(_render(DEPLOY, base, *components))

    return make_once("+".join((base, *components)), make).read_text()


def _render(deploy, base, *components):
    if not components:
        return kustomize(deploy / base)
    with tempfile.TemporaryDirectory() as directory:
        return kustomize(overlay(Path(directory, "overlay"), *components, base=base, deploy=deploy))


@functools.cache
def deploy_without_schemas():
    """Return a copy of ``deploy/`` that kustomize renders in a fifth of the time.

    Its CRDs have their names in place of their versions, which are in ``versions.json`` beside it.
    """
    return make_once("without schemas", _copy_without_schemas) / "deploy"


def _copy_without_schemas(folder):
    shutil.copytree(DEPLOY, folder / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    versions = {}
    for path in (folder / "deploy/crds").glob("*.yaml"):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)
        if definition["kind"] == "CustomResourceDefinition":
            name, spec = definition["metadata"]["name"], definition["spec"]
            versions[name], spec["versions"] = spec["versions"], name
            path.write_text(json.dumps(definition))
    (folder / "versions.json").write_text(json.dumps(versions))


@functools.cache
def _versions():
    return msgspec.json.decode(deploy_without_schemas().with_name("versions.json").read_bytes())


def _with_schemas(manifests):
    for obj in manifests:
        if obj["kind"] == "CustomResourceDefinition":
            # Where a patch of versions has not failed, it fails here: they are no name any more.
            obj["spec"]["versions"] = _versions()[obj["spec"]["versions"]]
        yield obj


def objects_of(folder):
    """Return the objects of a kustomization on top of ``deploy_without_schemas``."""
    return list(_with_schemas(parse(kustomize(folder))))


def overlay(folder, *components, base="default", deploy=DEPLOY):
    """Write a user's own kustomization of components on a base; return its folder."""
    folder.mkdir()
    away = Path(*[".."] * len(folder.resolve().parts[1:]), *deploy.parts[1:])
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(away / base)],
        "components": [str(away / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


def hardened_overlay(folder, *ranges, deploy=DEPLOY):
    """Write the hardened overlay with these ranges of the API server; return its folder."""
    given = yaml.safe_load((DEPLOY / "hardened/api-server.yaml").read_text())
    given["spec"]["ingress"] = [{"from": [{"ipBlock": {"cidr": cidr}} for cidr in ranges]}]
    (folder / "api-server.yaml").write_text(yaml.safe_dump(given))
    text = (DEPLOY / "hardened/kustomization.yaml").read_text()
    text = text.replace("../", f"{os.path.relpath(deploy, folder)}/")
    (folder / "kustomization.yaml").write_text(text)
    return folder


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
    (directory / "harbourmaster").symlink_to(deploy_without_schemas().parent)
    (directory / "overlay").mkdir()
    (directory / "overlay/kustomization.yaml").write_text(example)
    return objects_of(directory / "overlay")


def parse(text):
    """The objects in YAML of several documents, by the fast parser."""
    return yaml.load_all(text, yaml.CSafeLoader)


@functools.cache
def _document(text):
    return yaml.load(text, yaml.CSafeLoader)


def parse_shared_objects(text):
    """Return the objects in YAML; those that were in other texts too are parsed once."""
    return tuple(map(_document, text.rstrip().split("\n---\n")))


@functools.lru_cache(maxsize=64)
def objects(base="default", *components):
    """Return the rendered objects, shared by all callers."""

    def make(path):
        text = _render(deploy_without_schemas(), base, *components)
        path.write_bytes(msgspec.json.encode(parse_shared_objects(text)))

    path = make_once("+".join((base, *components, "objects")), make)
    return tuple(_with_schemas(msgspec.json.decode(path.read_bytes())))


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


def one(manifests, kind, name=None):
    """The one object of the kind (and name)."""
    (only,) = [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and (name is None or manifest["metadata"]["name"] == name)
    ]
    return only


def of_kind(manifests, *kinds):
    """The objects of the kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


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


def of_component(manifests, *components):
    """The roles that a base gives to components of ours."""
    return [
        role
        for role in of_kind(manifests, "Role", "ClusterRole")
        if role["metadata"]["labels"]["app.kubernetes.io/component"] in components
    ]


def deployment_of(manifests, name="controller"):
    """The Deployment of one of our processes."""
    return one(manifests, "Deployment", f"harbourmaster-{name}")


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


def settings_of(deployment):
    """The settings that a Deployment's arguments give, by the real parser."""
    arguments = parser_of(program.OWN).parse_args(container(deployment)["args"])
    return settings_from(arguments, arguments.settings_type, describe)


def controller_settings(manifests):
    """The settings of the controller's Deployment."""
    return settings_of(deployment_of(manifests))


def selects(selector, labels):
    """Whether ``matchLabels``, or a Service's plain selector, picks these labels."""
    wanted = selector.get("matchLabels", selector)
    return wanted.items() <= labels.items()
