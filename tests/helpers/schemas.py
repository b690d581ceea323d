"""The definitions in ``deploy/crds``, and objects as an API server that has them would hold."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import yaml
from hypothesis import strategies as st

from helpers.patience import WAIT

CRDS = Path(__file__).parents[2] / "deploy/crds"
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\0"), max_size=6
)
TIMES = st.sampled_from(["2026-11-21T18:00:00Z", "2026-11-21T18:00:01Z"])


def apply_definitions(kubectl):
    """Have an API server serve all our kinds."""
    kubectl("apply", "--server-side", f"--kustomize={CRDS}")
    kubectl("wait", "--for=condition=Established", WAIT, "crd", "--all")


def open_definition(resource):
    """The least that the API server needs to serve a kind; any object of it is valid."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


@cache
def definition(plural):
    """A definition by its kind's plural."""
    return yaml.load((CRDS / f"{plural}.yaml").read_text(), yaml.CSafeLoader)


def versions(plural):
    """The versions of the definition by name."""
    return {version["name"]: version for version in definition(plural)["spec"]["versions"]}


def objects(plural, version):
    """Objects of a version: valid, pruned, and with every default filled in."""
    spec = definition(plural)["spec"]
    schema = versions(plural)[version]["schema"]["openAPIV3Schema"]["properties"]
    parts = {
        "apiVersion": st.just(f"{spec['group']}/{version}"),
        "kind": st.just(spec["names"]["kind"]),
        "metadata": _metadata(),
        "spec": _values(schema["spec"]),
    }
    return st.fixed_dictionaries(parts, optional={"status": _values(schema["status"])})


def _metadata():
    fields = {"name": st.just("shop"), "namespace": st.just("market"), "uid": st.just("8c1f")}
    texts = st.dictionaries(TEXT, TEXT, min_size=1, max_size=2)
    return st.fixed_dictionaries(fields, optional={"labels": texts, "annotations": texts})


def _values(schema):
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            return st.dictionaries(TEXT, _values(schema["additionalProperties"]), max_size=2)
        case "object":
            always, optional = {}, {}
            for name, subschema in schema.get("properties", {}).items():
                is_there = name in schema.get("required", ()) or "default" in subschema
                (always if is_there else optional)[name] = _values(subschema)
            return st.fixed_dictionaries(always, optional=optional)
        case "array":
            return st.lists(_values(schema["items"]), max_size=2)
        case "integer":
            return st.integers(-(2**31), 2**31)
        case "boolean":
            return st.booleans()
        case _ if schema.get("format") == "date-time":
            return TIMES
        case _:
            return TEXT | st.sampled_from(["1.0", "2.0"])


GROUP = "lifecycle.keptn.sh"
CODE = {"inline": {"code": "console.log(1)"}}
REFERENCE = {"uid": "1-2-3", "kind": "ReplicaSet", "name": "cart-1"}
CONTEXT = {
    "appName": "shop",
    "appVersion": "1.0",
    "workloadName": "cart",
    "workloadVersion": "3",
    "taskType": "pre",
    "objectType": "Workload",
}
CHECKS = {
    "preDeploymentTasks": ["seed"],
    "postDeploymentTasks": ["mail"],
    "preDeploymentEvaluations": ["budget"],
    "postDeploymentEvaluations": ["latency"],
}
LISTED = [{"name": "cart", "version": "3"}]
METRIC = {"provider": {"name": "prometheus"}, "query": "up", "fetchIntervalSeconds": 10}
TARGETS = [{"keptnMetricRef": {"name": "up"}, "evaluationTarget": ">0"}]
OBJECTIVES = [
    {
        "analysisValueTemplateRef": {"name": "latency"},
        "target": {
            "failure": {"greaterThan": {"fixedValue": "1.5"}},
            "warning": {"inRange": {"lowBound": 1, "highBound": "1500m"}},
        },
        "weight": 2,
        "keyObjective": True,
    }
]
SCORE = {"passPercentage": 90, "warningPercentage": 75}

SPECS = {
    "keptnapps": {"version": "1.0", "revision": 123, "workloads": LISTED},
    "keptnappversions": {"appName": "shop", "version": "1.0", "workloads": LISTED, **CHECKS},
    "keptnappcontexts": {**CHECKS, "metadata": {"team": "a"}, "spanLinks": ["00-1-2-01"]},
    "keptnappcreationrequests": {"appName": "shop"},
    "keptnworkloads": {"app": "shop", "version": "3", "resourceReference": REFERENCE, **CHECKS},
    "keptnworkloadversions": {
        "app": "shop",
        "version": "3",
        "workloadName": "shop-cart",
        "resourceReference": REFERENCE,
        **CHECKS,
    },
    "keptntasks": {"taskDefinition": "seed", "context": CONTEXT, "checkType": "pre"},
    "keptntaskdefinitions": {"deno": CODE},
    "keptnevaluations": {
        "evaluationDefinition": "budget",
        "workload": "shop-cart",
        "workloadVersion": "3",
        "appName": "shop",
        "appVersion": "1.0",
    },
    "keptnevaluationdefinitions": {"objectives": TARGETS},
    "keptnevaluationproviders": {"targetServer": "https://example.com"},
    "keptnworkloadinstances": {
        "app": "shop",
        "version": "3",
        "workloadName": "shop-cart",
        "resourceReference": REFERENCE,
    },
    "keptnconfigs": {"blockDeployment": False, "OTelCollectorUrl": "collector.example.com:4317"},
    "keptnmetrics": METRIC,
    "keptnmetricsproviders": {
        "type": "prometheus",
        "targetServer": "https://prometheus.example.com",
    },
    "analyses": {
        "timeframe": {"recent": "5m"},
        "analysisDefinition": {"name": "quality"},
        "args": {"workload": "cart"},
    },
    "analysisdefinitions": {"objectives": OBJECTIVES, "totalScore": SCORE},
    "analysisvaluetemplates": {"provider": {"name": "prometheus"}, "query": "up{app='{{.app}}'}"},
}
"""User-written specs in the stored version, by plural."""


OLD = {
    "keptnapps": "v1alpha3",
    "keptnappversions": "v1alpha3",
    "keptnworkloads": "v1alpha3",
    "keptnworkloadversions": "v1alpha4",
    "keptnappcreationrequests": "v1alpha3",
    "keptntaskdefinitions": "v1alpha3",
    "keptntasks": "v1alpha3",
    "keptnevaluationdefinitions": "v1alpha3",
    "keptnevaluations": "v1alpha3",
}
"""Specs with the same meaning in an old version, by plural."""


def keptn_object(definition, name, namespace, version=None, **spec):
    """An object of a kind by its definition, by default in the version that is stored."""
    crd_spec = definition["spec"]
    plural = crd_spec["names"]["plural"]
    stored = next(entry["name"] for entry in crd_spec["versions"] if entry["storage"])
    return {
        "apiVersion": f"{crd_spec['group']}/{version or stored}",
        "kind": crd_spec["names"]["kind"],
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**SPECS[plural], **spec},
    }


class Kinds:
    """Reads and writes Keptn's kinds in any version, by kubectl."""

    def __init__(self, kubectl, namespace):
        self.kubectl = kubectl
        self.namespace = namespace

    def create(self, obj, *, check=True):
        """Create an object as a user would."""
        return self.kubectl("create", "-f=-", stdin=json.dumps(obj), check=check)

    def apply(self, obj):
        """Apply an object as a user would."""
        self.kubectl("apply", "-f=-", stdin=json.dumps(obj))

    def replace(self, obj, subresource=None):
        """Write back what was read."""
        options = [f"--subresource={subresource}"] if subresource else []
        return json.loads(
            self.kubectl("replace", "-f=-", "-o=json", *options, stdin=json.dumps(obj)).stdout
        )

    def read(self, plural, name, version="v1", group=GROUP):
        """An object in a version."""
        path = f"/apis/{group}/{version}/namespaces/{self.namespace}/{plural}/{name}"
        return json.loads(self.kubectl("get", "--raw", path).stdout)
