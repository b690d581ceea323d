"""Renders overlays of the base, which differ in their components."""  # noqa: INP001 -- for the script beside it
# ruff: noqa: ANN401 -- manifests of any kind

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from harbourmaster.playground.build import find_kubectl

if TYPE_CHECKING:
    from collections.abc import Callable

Overlay = frozenset[str]
"""The components that an overlay has, also those that are part of others."""

DEPLOY: Final = Path(__file__).parents[1]
ALONE: Final = "shadow"
"""An overlay that has no component."""
LAYERS: Final = {"with-certmanager": "certManager", "beside-keptn": "besideKeptn", ALONE: ALONE}
"""Overlays that become components here, with their names in values."""
FIRST: Final = ("ingress-rules", *LAYERS, "hardened", "network-policy")
"""Components that add what other components patch."""
LAST: Final = "gardener"
"""The component that renames what the others add."""
LESS: Final = ("beside-keptn", LAST, "no-custom-metrics", "pods-only", ALONE)
"""Components that remove what other components change."""
LEFT_OUT: Final = ("single-replica",)
"""Components that are not offered, because values have the same effect."""
RANGE: Final = "192.0.2.254/32"
"""Stands for the ranges of the API server while kustomize renders."""


class Component(NamedTuple):
    """A component: its folder below ``deploy``, the value that names it, and its parts."""

    folder: str
    name: str
    parts: Overlay


@cache
def components() -> tuple[Component, ...]:
    """Return all components, in the order in which an overlay lists them."""
    folders = {name: DEPLOY / name for name in LAYERS}
    for path in (DEPLOY / "components").iterdir():
        if path.name not in LEFT_OUT:
            folders[path.name] = path
    order = [
        *FIRST,
        *sorted(folders.keys() - {*FIRST, LAST}, key=lambda key: _patches(folders[key])),
        LAST,
    ]
    return tuple(
        Component(str(folders[name].relative_to(DEPLOY)), _value(name), _parts(folders[name]))
        for name in order
    )


def _value(folder: str) -> str:
    return LAYERS.get(folder) or re.sub("-(.)", lambda match: match[1].upper(), folder)


def _kustomization(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return content


def _patches(folder: Path) -> tuple[bool, str]:
    return "patches" in _kustomization(folder), folder.name


def _parts(folder: Path) -> Overlay:
    folders = [folder / component for component in _kustomization(folder).get("components", ())]
    return Overlay(_value(folder.name) for folder in folders).union(*map(_parts, folders))


@cache
def with_parts(*names: str) -> Overlay:
    """Return the components with their parts."""
    return Overlay(names).union(
        *(component.parts for component in components() if component.name in names)
    )


@cache
def nearly_all(but: str = "") -> Overlay:
    """Return the components that remove nothing, except one and those that include it."""
    return Overlay(
        component.name
        for component in components()
        if component.folder.rpartition("/")[2] not in LESS
        if but != component.name and but not in component.parts
    )


@cache
def additions() -> list[tuple[str, Overlay, Overlay]]:
    """Return each component with overlays without and with it, among none or nearly all others."""
    names = [component.name for component in components()]
    return [
        *((name, Overlay(), with_parts(name)) for name in names),
        *((name, nearly_all(but=name), nearly_all() | {name}) for name in names if name != ALONE),
    ]


def render_overlays(adapt: Callable[[dict[str, Any]], Any]) -> dict[Overlay, list[Any]]:
    """Render the objects of each overlay before and after an addition, and ``adapt`` each."""
    order = sorted({overlay for _, *pair in additions() for overlay in pair}, key=size)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        versions = _workspace(Path(folder, "deploy"))
        rendering = pool.map(partial(_kustomize, Path(folder)), order)
        texts = dict(zip(order, rendering, strict=True))

    @cache  # Most objects are the same in many overlays.
    def parse(document: str) -> Any:
        obj = yaml.load(document, yaml.CSafeLoader)
        if obj["kind"] == "CustomResourceDefinition":
            obj["spec"]["versions"] = versions[obj["metadata"]["name"]]
        return adapt(obj)

    return {overlay: [*map(parse, text.split("\n---\n"))] for overlay, text in texts.items()}


def size(overlay: Overlay) -> tuple[int, list[str]]:
    """Return a key to sort overlays by: how many components they have, and which."""
    return len(overlay), sorted(overlay)


def _workspace(folder: Path) -> dict[str, Any]:
    """Copy ``deploy`` with layers as components; return CRDs' versions, left out for speed."""
    shutil.copytree(DEPLOY, folder)
    for name in LAYERS:
        layer = _kustomization(folder / name)
        layer |= {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
        layer["resources"] = [
            resource for resource in layer["resources"] if resource not in {"../base", "../default"}
        ]
        # Values have them.
        layer.pop("replicas", None)
        _write(folder / name / "kustomization.yaml", layer)
    # The namespace is that of the release.
    gardener = folder / "components" / LAST
    _write(gardener / "kustomization.yaml", {**_kustomization(gardener), "namespace": None})
    hardened = folder / "components/hardened"
    ranges = yaml.safe_load((folder / "hardened/api-server.yaml").read_text())
    ranges["spec"]["ingress"] = [{"from": [{"ipBlock": {"cidr": RANGE}}]}]
    _write(hardened / "ranges.yaml", ranges)
    _write(
        hardened / "kustomization.yaml", {**_kustomization(hardened), "resources": ["ranges.yaml"]}
    )
    versions = {}
    for path in folder.glob("crds/*.yaml"):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)
        if definition["kind"] == "CustomResourceDefinition":
            versions[definition["metadata"]["name"]] = definition["spec"].pop("versions")
            _write(path, definition)
    return versions


def _write(path: Path, content: Any) -> None:
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))


def _kustomize(folder: Path, overlay: Overlay) -> str:
    parts = Overlay().union(
        *(component.parts for component in components() if component.name in overlay)
    )
    chosen = [component for component in components() if component.name in overlay - parts]
    place = Path(tempfile.mkdtemp(dir=folder))
    _write(
        place / "kustomization.yaml",
        {
            "resources": ["../deploy/base"],
            "components": [f"../deploy/{component.folder}" for component in chosen],
        },
    )
    kubectl = find_kubectl(Path(sys.executable).parent)
    result = subprocess.run(  # noqa: S603 -- our own tool
        [kubectl, "kustomize", place], capture_output=True, text=True, check=False
    )
    if result.returncode:
        names = ", ".join(component.name for component in chosen)
        sys.exit(f"kustomize failed: {names}: {result.stderr}")
    return result.stdout
