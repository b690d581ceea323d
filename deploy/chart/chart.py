"""Packs the Helm chart: ``chart.py VERSION IMAGE OUTPUT``, from what kustomize makes of ``deploy``.

Nothing of the manifests is written twice: the base is rendered alone, with each component, with all
of them and with all but one. From where something is seen follows on which components it depends,
and that becomes a condition in the templates. What people set comes from ``values.yaml``.
"""  # noqa: INP001 -- a script beside manifests, no package
# ruff: noqa: ANN401 -- manifests of any kind

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from harbourmaster.playground.build import find_kubectl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

World = frozenset[str]
"""The components that one rendering had, also those that are part of others."""
Term = tuple[World, World]
"""The components that must be there, and those that must not."""

Alternative = tuple[list[Term], Any]
"""A condition, and what stands there where it is met."""

HERE: Final = Path(__file__).parent
DEPLOY: Final = HERE.parent
NAMESPACE: Final = "harbourmaster-system"
LAYERS: Final = {"with-certmanager": "certManager", "beside-keptn": "besideKeptn"}
"""Overlays that are made components here, by the names that values give them."""
FIRST: Final = (*LAYERS, "hardened")
"""They bring what other components patch."""
LAST: Final = "gardener"
"""It renames what the others bring."""
LESS: Final = ("beside-keptn", "no-custom-metrics", "pods-only")
"""They take away what other components change."""
LEFT_OUT: Final = ("single-replica",)
"""What values say as well."""
RANGE: Final = "192.0.2.254/32"
"""Stands for the ranges of the API server while kustomize renders."""
KEEP: Final = "helm.sh/resource-policy"
ONLY_IF: Final = {
    "Namespace": ".Values.namespace.create",
    "CustomResourceDefinition": ".Values.crds.install",
}
PEERS: Final = {
    "monitoring": ".Values.networkPolicy.monitoring",
    "keda": ".Values.networkPolicy.keda",
    "ingress-nginx": ".Values.networkPolicy.ingress",
}
"""Namespaces in NetworkPolicies, and the values that name them."""


class Expression(NamedTuple):
    """A template's pipeline in place of a value; ``form``: value, optional, or items of a list."""

    pipeline: str
    form: str = "value"


class Component(NamedTuple):
    """A component: its folder below ``deploy``, the value that names it, and its parts."""

    folder: str
    name: str
    parts: World


def main(version: str, image: str, output: Path) -> None:
    """Write the chart of the version with the image as its default."""
    repository, tag, digest = parted(image)
    renderings, defaults = rendered()
    defaults |= {
        "image.repository": repository,
        "image.tag": tag,
        "image.digest": digest,
    }
    files = {
        "Chart.yaml": filled("Chart.yaml", {"version": version, "appVersion": version}),
        "values.yaml": filled("values.yaml", defaults),
        "LICENSE": (DEPLOY.parent / "LICENSE").read_text(),
        "templates/_parts.tpl": '{{- define "harbourmaster.parts" -}}\n'
        + json.dumps({each.name: sorted(each.parts) for each in components() if each.parts})
        + "\n{{- end }}\n",
        **templates(renderings),
    }
    for path in (HERE / "values.schema.json", *(HERE / "templates").iterdir()):
        files[str(path.relative_to(HERE))] = path.read_text()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(packed(files))


def parted(image: str) -> tuple[str, str, str]:
    """Repository, tag and digest of an image reference; an empty text for what it lacks."""
    match = re.fullmatch(r"(.+?)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?", image)
    if match is None or "@" in match[1]:
        sys.exit(f'invalid image "{image}": IMG: expected REPOSITORY[:TAG][@sha256:DIGEST]')
    repository, tag, digest = match.groups(default="")
    return repository, tag, digest


def filled(name: str, values: Mapping[str, Any]) -> str:
    """A file of ours with these values, by dotted path, where it has ``~``; comments stay."""
    text = (HERE / name).read_text()
    places = dict(_empty(yaml.compose(text)))
    for path in sorted(values, key=lambda each: -places[each].start_mark.index):
        node = places[path]
        value = yaml.safe_dump(values[path], default_flow_style=True, width=1 << 20)
        value = value.removesuffix("...\n").strip()
        text = text[: node.start_mark.index] + value + text[node.end_mark.index :]
    return text


def _empty(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _empty(value, f"{path}.{key.value}".lstrip("."))
    elif node.value == "~":
        yield path, node


def packed(files: Mapping[str, str]) -> bytes:
    """The archive, which depends on nothing but its files."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=content, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(files):
            data = files[name].encode()
            entry = tarfile.TarInfo(f"harbourmaster/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


# What kustomize makes of the base and its components.


@cache
def components() -> tuple[Component, ...]:
    """All components, in the order in which an overlay lists them."""
    folders = {name: DEPLOY / name for name in LAYERS}
    for path in (DEPLOY / "components").iterdir():
        if path.name not in LEFT_OUT:
            folders[path.name] = path
    order = [
        *FIRST,
        *sorted(folders.keys() - {*FIRST, LAST}, key=lambda each: _patches(folders[each])),
        LAST,
    ]
    return tuple(
        Component(str(folders[name].relative_to(DEPLOY)), _value(name), _parts(folders[name]))
        for name in order
    )


def _value(folder: str) -> str:
    return LAYERS.get(folder) or re.sub("-(.)", lambda match: match[1].upper(), folder)


def _kustomization(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return found


def _patches(folder: Path) -> tuple[bool, str]:
    return "patches" in _kustomization(folder), folder.name


def _parts(folder: Path) -> World:
    found = [folder / each for each in _kustomization(folder).get("components", ())]
    return World(_value(each.name) for each in found).union(*map(_parts, found))


@cache
def closed(*names: str) -> World:
    """The components with their parts."""
    return World(names).union(*(each.parts for each in components() if each.name in names))


@cache
def nearly_all(but: str = "") -> World:
    """Every component that takes nothing away, but one, and but those that it is a part of."""
    return World(
        each.name
        for each in components()
        if each.folder.rpartition("/")[2] not in LESS
        if but != each.name and but not in each.parts
    )


def rendered() -> tuple[dict[World, list[dict[str, Any]]], dict[str, Any]]:
    """The objects of each world, with expressions where values decide; and the values' defaults."""
    names = [each.name for each in components()]
    worlds = {World(), *(closed(name) for name in names)}
    for name in names:
        worlds |= {nearly_all(but=name), nearly_all() | {name}}
    defaults: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        versions = _workspace(Path(folder, "deploy"))
        order = sorted(worlds, key=_size)
        texts = pool.map(partial(_kustomized, Path(folder)), order)
        found = {
            world: [
                adapted(each, versions, defaults) for each in yaml.load_all(text, yaml.CSafeLoader)
            ]
            for world, text in zip(order, texts, strict=True)
        }
    return found, defaults


def _size(world: World) -> tuple[int, list[str]]:
    return len(world), sorted(world)


def _workspace(folder: Path) -> dict[str, Any]:
    """Copy ``deploy`` with layers as components; return CRDs' versions, left out for speed."""
    shutil.copytree(DEPLOY, folder)
    for name in LAYERS:
        layer = _kustomization(folder / name)
        layer |= {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
        layer["resources"] = [
            each for each in layer["resources"] if each not in {"../base", "../default"}
        ]
        _write(folder / name / "kustomization.yaml", layer)
    # The release says which namespace.
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


def _kustomized(folder: Path, world: World) -> str:
    parts = frozenset[str]().union(*(each.parts for each in components() if each.name in world))
    chosen = [each for each in components() if each.name in world - parts]
    overlay = Path(tempfile.mkdtemp(dir=folder))
    _write(
        overlay / "kustomization.yaml",
        {
            "resources": ["../deploy/base"],
            "components": [f"../deploy/{each.folder}" for each in chosen],
        },
    )
    kubectl = find_kubectl(Path(sys.executable).parent)
    result = subprocess.run(  # noqa: S603 -- our own tool
        [kubectl, "kustomize", overlay], capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"kustomize failed: {', '.join(each.name for each in chosen)}: {result.stderr}")
    return result.stdout


# Where values decide.


def adapted(
    found: dict[str, Any], versions: Mapping[str, Any], defaults: dict[str, Any]
) -> dict[str, Any]:
    """An object with expressions where values decide; adds what was there to ``defaults``."""
    kind, metadata = found["kind"], found["metadata"]
    if kind == "Deployment":
        _deployment(found["spec"], defaults)
    elif kind.endswith("WebhookConfiguration"):
        for each in found["webhooks"]:
            _webhook(each)
    elif kind == "CustomResourceDefinition":
        found["spec"]["versions"] = versions[metadata["name"]]
        metadata["annotations"] = (
            {**known, KEEP: Expression('ternary "keep" "" .Values.crds.keep', "optional")}
            if (known := metadata.get("annotations"))
            else Expression(f'ternary (dict "{KEEP}" "keep") dict .Values.crds.keep', "optional")
        )
    elif kind == "NetworkPolicy":
        found = _peers(found)
    return found


def _deployment(spec: dict[str, Any], defaults: dict[str, Any]) -> None:
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    pod["imagePullSecrets"] = Expression(".Values.image.pullSecrets", "optional")
    if not container["image"].startswith("harbourmaster:"):
        name = container["name"]
        container["image"] = Expression(f'include "harbourmaster.{name}Image" .')
        return
    role = container["name"]
    container["image"] = Expression('include "harbourmaster.image" .')
    for place, key, value in (
        (container, "imagePullPolicy", "image.pullPolicy"),
        (container, "resources", f"{role}.resources"),
        (spec, "replicas", f"{role}.replicas"),
        (pod, "nodeSelector", f"{role}.nodeSelector"),
    ):
        if defaults.setdefault(value, place[key]) != place[key]:
            sys.exit(f"{value} has no default: {key} depends on components")
        place[key] = Expression(f".Values.{value}")
    pod["priorityClassName"] = Expression(
        f'default "{pod["priorityClassName"]}" .Values.{role}.priorityClassName'
    )
    pod["affinity"] = Expression(f".Values.{role}.affinity", "optional")
    pod["tolerations"] = Expression(
        f"concat ({_literal(pod.get('tolerations', []))}) .Values.{role}.tolerations", "optional"
    )
    annotated = spec["template"]["metadata"]
    annotated["annotations"] = Expression(
        f"mergeOverwrite ({_literal(annotated['annotations'])}) .Values.{role}.podAnnotations"
    )
    flags = f'include "harbourmaster.{role}Flags" . | fromJsonArray'
    container["args"].append(Expression(flags, "items"))


def _webhook(entry: dict[str, Any]) -> None:
    policy = entry["failurePolicy"]
    value = {"Ignore": "failurePolicy", "Fail": "gatedFailurePolicy"}[policy]
    entry["failurePolicy"] = Expression(f'default "{policy}" .Values.admission.{value}')
    for each in entry["namespaceSelector"].get("matchExpressions", ()):
        if each["operator"] == "NotIn" and NAMESPACE in each["values"]:
            excluded = _literal([one for one in each["values"] if one != NAMESPACE])
            each["values"] = Expression(
                f"append (default ({excluded}) .Values.admission.excludedNamespaces)"
                " .Release.Namespace"
            )


def _peers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _peers(each) for key, each in value.items()}
    if value == [{"ipBlock": {"cidr": RANGE}}]:
        return Expression('include "harbourmaster.apiServer" . | fromJsonArray')
    if isinstance(value, list):
        return [_peers(each) for each in value]
    if value == RANGE:
        return Expression("first .Values.hardened.apiServerCIDRs")
    return Expression(PEERS[value]) if value in PEERS else value


def _literal(value: Any) -> str:
    return f"{'fromJsonArray' if isinstance(value, list) else 'fromJson'} `{json.dumps(value)}`"


# The union of all renderings.


def templates(renderings: Mapping[World, list[dict[str, Any]]]) -> dict[str, str]:
    """A template for each kind, with all objects that any world has."""
    objects: dict[tuple[str, str, str], dict[World, Any]] = {}
    for world, found in renderings.items():
        for each in found:
            metadata = each["metadata"]
            key = each["kind"], metadata.get("namespace", ""), metadata["name"]
            objects.setdefault(key, {})[world] = each
    files: dict[str, list[str]] = {}
    for (kind, _, _), values in sorted(objects.items()):
        lines = files.setdefault(
            f"templates/{kind.lower()}.yaml",
            ['{{- $with := include "harbourmaster.components" . | fromJson }}'],
        )
        for condition, tree in union(values, frozenset(renderings)):
            text = guarded(condition, ["---", *written(tree)])
            lines += (
                [f"{{{{- if {ONLY_IF[kind]} }}}}", *text, "{{- end }}"] if kind in ONLY_IF else text
            )
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def union(values: Mapping[World, Any], among: frozenset[World]) -> list[Alternative]:
    """What can stand in one place, each with its condition: mappings and lists are united.

    What a key of a united mapping has, and the items of a united list, are such alternatives too.
    """
    groups: dict[str, dict[World, Any]] = {}
    for world, value in values.items():
        united = isinstance(value, (dict, list)) and value
        groups.setdefault(type(value).__name__ if united else repr(value), {})[world] = value
    found = []
    for group in groups.values():
        condition = learned(frozenset(group), among)
        world, first = next(iter(group.items()))
        same = {world: first} if all(each == first for each in group.values()) else group
        found.append((condition, _united(same)))
    return found


def _united(group: Mapping[World, Any]) -> Any:
    tree, here = next(iter(group.values())), frozenset(group)
    if isinstance(tree, dict):
        keys = sorted(set[str]().union(*group.values()))
        return {
            key: union({world: one[key] for world, one in group.items() if key in one}, here)
            for key in keys
        }
    if not isinstance(tree, list):
        return tree
    # The largest first: it has nearly all items, and so their order.
    items: list[tuple[str, dict[World, Any]]] = []
    for world in sorted(group, key=_size, reverse=True):
        new = [(_identity(each), {world: each}) for each in group[world]]
        matcher = SequenceMatcher(
            None, [name for name, _ in items], [name for name, _ in new], autojunk=False
        )
        for what, _, end, begin, stop in reversed(matcher.get_opcodes()):
            if what == "equal":
                for (_, known), (_, one) in zip(
                    items[:end][begin - stop :], new[begin:stop], strict=True
                ):
                    known.update(one)
            else:
                items[end:end] = new[begin:stop]
    return [one for _, values in items for one in union(values, here)]


def _identity(item: Any) -> str:
    return item["name"] if isinstance(item, dict) and "name" in item else repr(item)


@cache
def learned(present: frozenset[World], among: frozenset[World]) -> list[Term]:
    """When something is there, from the worlds in which it was: where any of the terms holds.

    ``among`` are the worlds that have what it is in. Exits if no such terms are found.
    """
    names = {each.name for each in components()}
    given, absent = World.intersection(*among), among - present
    terms: list[Term] = []
    top = nearly_all()
    for world in sorted(present, key=lambda one: (len(_named(one)) > 1, one != top, *_size(one))):
        if holds(terms, world):
            continue
        needed = world
        if world == top:
            needed = World(name for name in names if nearly_all(but=name) in absent)
        elif len(_named(world)) > 1:
            needed = World()
        needed = _named(needed) - given
        refused = {name for name in names if not needed and closed(name) in absent}
        refused -= {each.name for each in components() if each.parts & refused}
        if top in absent and not refused:
            refused |= _named(World(name for name in names if nearly_all(but=name) in present))
        if top in present:
            refused |= {name for name in names if top | {name} in absent}
        terms.append((needed, World(refused)))
    for world in among:
        if holds(terms, world) != (world in present):
            sys.exit(f"no condition found: it would be wrong for {', '.join(sorted(world))}")
    return terms


def _named(world: World) -> World:
    """The components of a world without the parts of others in it."""
    return world.difference(*(each.parts for each in components() if each.name in world))


def holds(terms: Iterable[Term], world: World) -> bool:
    """Whether a condition is met."""
    return any(needed <= world and not refused & world for needed, refused in terms)


def written(tree: Any, indent: str = "") -> list[str]:
    """The lines of a united mapping or list."""
    if isinstance(tree, list):
        entries = [(condition, _entry(f"{indent}-", each, indent)) for condition, each in tree]
    else:
        entries = [
            (condition, _entry(f"{indent}{_text(key)}:", each, indent))
            for key, alternatives in tree.items()
            for condition, each in alternatives
        ]
    return [
        line
        for condition, group in groupby(entries, key=itemgetter(0))
        for line in guarded(condition, list(chain.from_iterable(map(itemgetter(1), group))))
    ]


def _entry(head: str, tree: Any, indent: str) -> list[str]:
    if isinstance(tree, Expression):
        if tree.form == "value":
            return [f"{head} {{{{ toJson ({tree.pipeline}) }}}}"]
        block, head = ("with", head) if tree.form == "optional" else ("range", head)
        return [f"{{{{- {block} {tree.pipeline} }}}}", f"{head} {{{{ toJson . }}}}", "{{- end }}"]
    if isinstance(tree, (dict, list)) and tree:
        return [head, *written(tree, f"{indent}  ")]
    return [f"{head} {_text(tree)}"]


def _text(value: Any) -> str:
    """A scalar, as JSON unless it is plainly text, without what templates would read as theirs."""
    plain = isinstance(value, str) and _is_plain(value)
    text = value if plain else json.dumps(value, ensure_ascii=False)
    return text.replace("{{", '{{ "{{" }}').replace(NAMESPACE, "{{ .Release.Namespace }}")


@cache
def _is_plain(text: str) -> bool:
    if NAMESPACE in text or not re.fullmatch(r"[A-Za-z][\w./-]+", text):
        return False
    return bool(yaml.safe_load(text) == text)


def guarded(condition: Iterable[Term], lines: list[str]) -> list[str]:
    """The lines, in what makes them appear only where the condition is met."""
    terms = [
        [
            *(f"$with.{name}" for name in sorted(needed)),
            *(f"(not $with.{name})" for name in sorted(refused)),
        ]
        for needed, refused in condition
    ]
    if not all(terms):
        return lines
    texts = [f"(and {' '.join(term)})" if len(term) > 1 else term[0] for term in terms]
    text = f"or {' '.join(texts)}" if len(texts) > 1 else texts[0]
    return [f"{{{{- if {text} }}}}", *lines, "{{- end }}"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
