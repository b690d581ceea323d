"""Writes the Helm chart: ``chart.py VERSION IMAGE FOLDER [SETTING=VALUE...]``.

The templates come from the manifests in ``deploy``, so that nothing is written twice. Kustomize
renders the base alone, with each component, with all components and with all but one. The
renderings that contain a field show which components it depends on: that is its condition in the
template. What users set is in ``values.yaml``.
"""  # noqa: INP001 -- a script beside manifests, no package
# ruff: noqa: ANN401 -- manifests of any kind

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

from overlays import RANGE, components, render_overlays  # type: ignore[import-not-found]
from union import NAMESPACE, Expression, templates  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE: Final = Path(__file__).parent
KEEP: Final = "helm.sh/resource-policy"
FINAL_STATE: Final = "harbourmaster-final-state"
PEERS: Final = {
    "monitoring": ".Values.networkPolicy.monitoring",
    "keda": ".Values.networkPolicy.keda",
    "ingress-nginx": ".Values.networkPolicy.ingress",
}
"""Namespaces in NetworkPolicies, and the values that name them."""


def main(version: str, image: str, folder: Path, *settings: str) -> None:
    """Write the chart of the version, with the image and the controller's settings as defaults."""
    repository, tag, digest = split_image(image)
    defaults: dict[str, Any] = {
        "image.repository": repository,
        "image.tag": tag,
        "image.digest": digest,
        "controller.settings": dict(setting.split("=", 1) for setting in settings),
    }
    renderings = render_overlays(lambda obj: adapt(obj, defaults))
    files = {
        "Chart.yaml": fill_in("Chart.yaml", {"version": version}),
        "values.yaml": fill_in("values.yaml", defaults),
        "LICENSE": (HERE.parents[1] / "LICENSE").read_text(),
        "templates/_parts.tpl": '{{- define "harbourmaster.parts" -}}\n'
        + json.dumps(
            {
                component.name: sorted(component.parts)
                for component in components()
                if component.parts
            }
        )
        + "\n{{- end }}\n"
        + f'{{{{- define "harbourmaster.chartDigest" -}}}}{digest}{{{{- end }}}}\n',
        **templates(renderings),
    }
    for path in (HERE / "values.schema.json", *(HERE / "templates").iterdir()):
        files[str(path.relative_to(HERE))] = path.read_text()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def split_image(image: str) -> tuple[str, str, str]:
    """Return repository, tag and digest of an image reference; "" for each that it lacks."""
    match = re.fullmatch(r"(.+?)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?", image)
    if match is None or "@" in match[1]:
        sys.exit(f'invalid image "{image}": IMG: expected REPOSITORY[:TAG][@sha256:DIGEST]')
    repository, tag, digest = match.groups(default="")
    return repository, tag, digest


class _File(Template):
    braceidpattern = r"[\w.]+"


def fill_in(name: str, values: Mapping[str, Any]) -> str:
    """Return a file of the chart with each ``${PATH}`` replaced by the value of that path."""
    text = (HERE / name).read_text()
    return _File(text).substitute({path: json.dumps(values[path]) for path in values})


def adapt(obj: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Replace what values decide by expressions; add the replaced values to ``defaults``."""
    kind, metadata = obj["kind"], obj["metadata"]
    if kind == "Deployment":
        _deployment(obj["spec"], defaults)
    elif kind.endswith("WebhookConfiguration"):
        for webhook in obj["webhooks"]:
            _webhook(webhook)
    elif kind == "CustomResourceDefinition":
        metadata["annotations"] = (
            {**known, KEEP: Expression('ternary "keep" "" .Values.crds.keep', "optional")}
            if (known := metadata.get("annotations"))
            else Expression(f'ternary (dict "{KEEP}" "keep") dict .Values.crds.keep', "optional")
        )
    elif kind == "NetworkPolicy":
        obj = _with_values(obj)
    elif metadata["name"].startswith(FINAL_STATE) and kind.endswith("Binding"):
        obj["spec"]["validationActions"] = Expression("list .Values.finalStateCheck.action")
    elif "matchConstraints" in obj.get("spec", {}):
        _exclude(obj["spec"]["matchConstraints"])
    return obj


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
    _exclude(entry)


def _exclude(entry: dict[str, Any]) -> None:
    for expression in entry.get("namespaceSelector", {}).get("matchExpressions", ()):
        if expression["operator"] == "NotIn" and NAMESPACE in expression["values"]:
            excluded = _literal([value for value in expression["values"] if value != NAMESPACE])
            expression["values"] = Expression(
                f"append (default ({excluded}) .Values.admission.excludedNamespaces)"
                " .Release.Namespace"
            )


def _with_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_values(member) for key, member in value.items()}
    if value == [{"ipBlock": {"cidr": RANGE}}]:
        return Expression('include "harbourmaster.apiServer" . | fromJsonArray')
    if isinstance(value, list):
        return [_with_values(item) for item in value]
    if value == RANGE:
        return Expression("first .Values.hardened.apiServerCIDRs")
    return Expression(PEERS[value]) if value in PEERS else value


def _literal(value: Any) -> str:
    return f"{'fromJsonArray' if isinstance(value, list) else 'fromJson'} `{json.dumps(value)}`"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
