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

import yaml
from overlays import RANGE, components, render_overlays  # type: ignore[import-not-found]
from schema import schema  # type: ignore[import-not-found]
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
ROLES: Final = ("webhook", "controller")
COMPONENT: Final = "app.kubernetes.io/component"
ANNOTATED: Final = {
    "Service": "service.annotations",
    "ServiceAccount": "serviceAccount.annotations",
}
"""Kinds whose annotations are values of a process."""
INJECT: Final = "cert-manager.io/inject-ca-from"
BUNDLE: Final = Expression('include "harbourmaster.caBundle" .', "optional")
PORTS: Final = {"webhook": "port", "metrics-api": "port", "health": "healthPort"}
"""Ports of a process that values change, by their names."""
INGRESS: Final = "harbourmaster-ingress"
OPENED: Final = {
    8080: ".Values.webhook.healthPort",
    9443: ".Values.webhook.port",
    6443: ".Values.controller.port",
}
"""Ports that the NetworkPolicy opens to all, and the values that change them."""


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
    files["values.schema.json"] = json.dumps(schema(yaml.safe_load(files["values.yaml"])), indent=1)
    for path in (HERE / "templates").iterdir():
        files[f"templates/{path.name}"] = path.read_text()
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
    kind, spec = obj["kind"], obj.get("spec", {})
    if kind == "Deployment":
        _deployment(spec, defaults)
    elif kind == "NetworkPolicy":
        obj = _with_values(obj)
        _open(obj["metadata"]["name"], obj["spec"])
    elif kind == "ServiceMonitor":
        (endpoint,) = spec["endpoints"]
        for key in ("interval", "scrapeTimeout"):
            endpoint[key] = _value(f"monitoring.{key}", endpoint[key], defaults)
    elif kind == "Certificate":
        issuer = f"default ({_literal(spec['issuerRef'])}) .Values.certManager.issuerRef"
        spec["issuerRef"] = Expression(issuer)
    elif kind == "Namespace":
        level = f'ternary "privileged" "restricted" (or {" ".join(map(_on_node, ROLES))})'
        obj["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = Expression(level)
    else:
        _admission(obj)
    _metadata(kind, obj["metadata"])
    return obj


def _admission(obj: dict[str, Any]) -> None:
    """Let values decide what the API server calls, trusts and leaves out."""
    kind, spec = obj["kind"], obj.get("spec", {})
    for webhook in obj.get("webhooks", ()):
        _webhook(webhook)
    if kind == "APIService":
        spec["caBundle"] = BUNDLE
    if "conversion" in spec:
        spec["conversion"]["webhook"]["clientConfig"]["caBundle"] = BUNDLE
    if "matchConstraints" in spec:
        _exclude(spec["matchConstraints"])
    if obj["metadata"]["name"].startswith(FINAL_STATE) and kind.endswith("Binding"):
        spec["validationActions"] = Expression("list .Values.finalStateCheck.action")


def _metadata(kind: str, metadata: dict[str, Any]) -> None:
    """Add the labels and annotations that values and Helm give to an object of this kind."""
    labels, annotations = metadata["labels"], metadata.get("annotations", {})
    sources = [".Values.commonAnnotations"]
    if kind in ANNOTATED and labels.get(COMPONENT) in ROLES:
        sources.insert(0, f".Values.{labels[COMPONENT]}.{ANNOTATED[kind]}")
    if kind == "CustomResourceDefinition":
        sources.append(f'(ternary (dict "{KEEP}" "keep") dict .Values.crds.keep)')
    if from_certificate := annotations.pop(INJECT, ""):
        name = from_certificate.rpartition("/")[2]
        injected = f'dict "{INJECT}" (printf "%s/{name}" .Release.Namespace)'
        sources.append(f'(ternary ({injected}) dict (eq .Values.certificates "certManager"))')
    monitored = kind in {"ServiceMonitor", "PrometheusRule"}
    metadata["labels"] = _with_more(
        labels, *([".Values.monitoring.labels"] if monitored else []), "$labels"
    )
    metadata["annotations"] = _with_more(annotations, *sources)


def _with_more(known: dict[str, Any], *sources: str) -> Any:
    """Return the mapping with the members of the sources that it lacks; earlier sources win."""
    pipeline = f"merge (dict) {' '.join(sources)}"
    if not known:
        return Expression(pipeline, "optional")
    keys = " ".join(map(json.dumps, sorted(known)))
    return {**known, "": Expression(f"omit ({pipeline}) {keys}", "members")}


def _value(name: str, value: Any, defaults: dict[str, Any]) -> Expression:
    """Return what stands for a value that users set; its default is what the manifests have."""
    if defaults.setdefault(name, value) != value:
        sys.exit(f"{name} has no default: it depends on components")
    return Expression(f".Values.{name}", "optional")


def _deployment(spec: dict[str, Any], defaults: dict[str, Any]) -> None:
    pod, metadata = spec["template"]["spec"], spec["template"]["metadata"]
    (container,) = pod["containers"]
    role = container["name"]
    pod["imagePullSecrets"] = Expression(".Values.image.pullSecrets", "optional")
    for place, name in ((pod, "podSecurityContext"), (container, "securityContext")):
        place["securityContext"] = _value(name, place["securityContext"], defaults)
    for secret in (volume["secret"] for volume in pod.get("volumes", ()) if "secret" in volume):
        secret["secretName"] = Expression('include "harbourmaster.certificate" .')
        # Only clients need the authority, and not every tool adds it to the Secret.
        authority, *pair = secret["items"]
        if pair:
            existing = '(eq .Values.certificates "existing")'
            optional = Expression(f"ternary list ({_literal([authority])}) {existing}", "items")
            secret["items"] = [optional, *pair]
    more = [f".Values.{role}.podLabels"] if role in ROLES else []
    metadata["labels"] = _with_more(metadata["labels"], *more, "$labels")
    if role not in ROLES:
        container["image"] = Expression(f'include "harbourmaster.{role}Image" .')
        return
    container["image"] = Expression('include "harbourmaster.image" .')
    for place, key, name in (
        (container, "imagePullPolicy", "image.pullPolicy"),
        (container, "resources", f"{role}.resources"),
        (spec, "replicas", f"{role}.replicas"),
        (pod, "nodeSelector", f"{role}.nodeSelector"),
        (pod, "topologySpreadConstraints", f"{role}.topologySpreadConstraints"),
    ):
        place[key] = _value(name, place[key], defaults)
    priority, chosen = pod["priorityClassName"], f".Values.{role}.priorityClassName"
    pod["priorityClassName"] = Expression(
        f'ternary "{priority}" {chosen} (kindIs "invalid" {chosen})', "optional"
    )
    pod["affinity"] = Expression(f".Values.{role}.affinity", "optional")
    pod["tolerations"] = Expression(
        f"concat ({_literal(pod.get('tolerations', []))}) .Values.{role}.tolerations", "optional"
    )
    metadata["annotations"] = Expression(
        f"mergeOverwrite ({_literal(metadata['annotations'])}) .Values.{role}.podAnnotations"
    )
    for place, key, name in (
        (container, "env", "extraEnv"),
        (container, "volumeMounts", "volumeMounts"),
        (pod, "volumes", "volumes"),
    ):
        more = Expression(f".Values.{role}.{name}", "items" if key in place else "optional")
        place[key] = [*place[key], more] if key in place else more
    _network(role, spec)
    flags = f'include "harbourmaster.{role}Flags" . | fromJsonArray'
    container["args"].append(Expression(flags, "items"))


def _network(role: str, spec: dict[str, Any]) -> None:
    """Let values move pods to the network of their node, where each port is used once."""
    pod = spec["template"]["spec"]
    pod["hostNetwork"] = Expression(_on_node(role), "optional")
    policy = f'ternary "ClusterFirstWithHostNet" "" {_on_node(role)}'
    pod["dnsPolicy"] = Expression(policy, "optional")
    update = spec["strategy"]["rollingUpdate"]
    for key, value in (("maxSurge", 0), ("maxUnavailable", 1)):
        update[key] = Expression(f"ternary {value} {update[key]} {_on_node(role)}")
    for port in pod["containers"][0]["ports"]:
        if port["name"] in PORTS:
            number = f"default {port['containerPort']} .Values.{role}.{PORTS[port['name']]}"
            port["containerPort"] = Expression(number)


def _on_node(role: str) -> str:
    return f".Values.{role}.hostNetwork"


def _webhook(entry: dict[str, Any]) -> None:
    policy = entry["failurePolicy"]
    value = {"Ignore": "failurePolicy", "Fail": "gatedFailurePolicy"}[policy]
    entry["failurePolicy"] = Expression(f'default "{policy}" .Values.admission.{value}')
    entry["clientConfig"]["caBundle"] = BUNDLE
    _exclude(entry)


def _exclude(entry: dict[str, Any]) -> None:
    for expression in entry.get("namespaceSelector", {}).get("matchExpressions", ()):
        if expression["operator"] == "NotIn" and NAMESPACE in expression["values"]:
            excluded = _literal([value for value in expression["values"] if value != NAMESPACE])
            expression["values"] = Expression(
                f"append (default ({excluded}) .Values.admission.excludedNamespaces)"
                " .Release.Namespace"
            )


def _open(name: str, spec: dict[str, Any]) -> None:
    for rule in spec["ingress"] if name == INGRESS else ():
        for port in rule["ports"]:
            if port["port"] in OPENED:
                port["port"] = Expression(f"default {port['port']} {OPENED[port['port']]}")


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
