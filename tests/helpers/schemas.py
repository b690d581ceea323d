"""The definitions in ``deploy/crds``, and objects as an API server that has them would hold."""

from __future__ import annotations

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
