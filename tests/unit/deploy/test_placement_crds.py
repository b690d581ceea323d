"""The definitions of the placement kinds against what the code reads and writes of them.

These tests prove krake-spec 7.1.
"""

from __future__ import annotations

import re
import types
import typing

import pytest
from msgspec import UNSET, Struct, structs

from harbourmaster.placement.deployed import DeployedApplication, MemberCluster
from harbourmaster.placement.model import GROUP, KINDS, Condition, ReportedCluster
from harbourmaster.placement.provider_validation import SubmittedProvider
from harbourmaster.placement.validation import CHECKS
from helpers.schemas import CRDS, definition

PLURALS = {
    "Application": "applications",
    "Cluster": "clusters",
    "Cloud": "clouds",
    "GlobalCloud": "globalclouds",
    "Project": "projects",
    "MagnumCluster": "magnumclusters",
    "Metric": "metrics",
    "GlobalMetric": "globalmetrics",
    "MetricsProvider": "metricsproviders",
    "GlobalMetricsProvider": "globalmetricsproviders",
}
SHORT = {"Application": ["kapp"], "Cluster": ["kcl"]}
WITH_STATUS = {"Application", "Cluster", "MagnumCluster"}
READ = {
    **{kind: (model, CHECKS[kind].model) for kind, model in KINDS.items()},
    "Application": (KINDS["Application"], CHECKS["Application"].model, DeployedApplication),
    "Cluster": (KINDS["Cluster"], CHECKS["Cluster"].model, MemberCluster, ReportedCluster),
    "MetricsProvider": (SubmittedProvider,),
    "GlobalMetricsProvider": (SubmittedProvider,),
}
FOR_OTHERS = {
    "Cloud": {".spec.provider"},
    "GlobalCloud": {".spec.provider"},
    "MagnumCluster": {".spec.masterCount", ".spec.nodeCount"},
}
"""Fields that no model reads: they are for people and for provisioners."""
UNUSED = {
    "Application": {
        ".status.runningOn.kind",
        ".status.runningOn.namespace",
    },
    "Cluster": {".spec.cloudRef.namespace", ".spec.cloudRef.uid"},
}
"""Fields of structures that several kinds share, which these kinds have no use for."""
OF_OTHER_TARGETS = {
    "Cluster": {".spec.constraints.cloud.customResources"},
    "MagnumCluster": {
        ".spec.constraints.project.customResources",
        ".spec.constraints.project.metrics",
    },
}
EACH = pytest.mark.parametrize("kind", PLURALS)


def version_of(kind):
    (version,) = definition(PLURALS[kind])["spec"]["versions"]
    return version


def schema_of(kind):
    return version_of(kind)["schema"]["openAPIV3Schema"]


def schema_fields(schema, path=""):
    """Every field of a schema, by its path."""
    for name, below in schema.get("properties", {}).items():
        yield from _with_parts(below, f"{path}.{name}")


def _with_parts(schema, path):
    yield path, schema
    yield from schema_fields(schema, path)
    if "items" in schema:
        yield from schema_fields(schema["items"], f"{path}[]")


def model_fields(model, path=""):
    """Every field of a Struct, by its path, with its type and whether it must be there."""
    hints = typing.get_type_hints(model)
    for field in structs.fields(model):
        here = f"{path}.{field.encode_name}"
        kind, below = wire_type(hints[field.name])
        has_default = (field.default, field.default_factory) != (structs.NODEFAULT,) * 2
        yield here, kind, not has_default
        if below is not None:
            yield from model_fields(below, here + ("[]" if kind == "array" else ""))


def wire_type(hint):
    """The JSON type of an annotation, and the Struct that is in it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        (argument,) = [argument for argument in args if argument is not type(None)]
        return wire_type(argument)
    if origin is tuple:
        return "array", wire_type(args[0])[1]
    if origin is dict:
        return "object", None
    if origin is typing.Literal or hint is str:
        return "string", None
    if isinstance(hint, type) and issubclass(hint, Struct):
        return "object", hint
    known = {bool: "boolean", int: "integer", float: "number", typing.Any: "object"}
    return known[hint], None


def read_fields(kind):
    """Return the fields that the code reads of a kind, without metadata, and those it requires."""
    fields, needed = {}, set()
    for model in READ[kind]:
        for path, type_, is_needed in model_fields(model):
            if path.startswith((".spec", ".status")):
                assert fields.setdefault(path, type_) == type_, path
                needed |= {path} if is_needed else set()
    return fields, needed


def test_all_ten_kinds_have_a_definition_each():
    assert PLURALS.keys() == KINDS.keys() == CHECKS.keys()
    of_group = {
        path.stem
        for path in CRDS.glob("*.yaml")
        if path.stem != "kustomization" and definition(path.stem)["spec"]["group"] == GROUP
    }
    assert of_group == set(PLURALS.values())


@EACH
def test_names_and_scopes(kind):
    crd = definition(PLURALS[kind])
    assert crd["metadata"]["name"] == f"{PLURALS[kind]}.{GROUP}"
    assert crd["spec"]["scope"] == ("Cluster" if kind.startswith("Global") else "Namespaced")
    assert crd["spec"]["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": PLURALS[kind],
        "singular": kind.lower(),
        **({"shortNames": SHORT[kind]} if kind in SHORT else {}),
    }


@EACH
def test_one_version_and_a_status_where_something_is_decided(kind):
    version = version_of(kind)
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version.get("subresources") == ({"status": {}} if kind in WITH_STATUS else None)
    assert ("status" in schema_of(kind)["properties"]) is (kind in WITH_STATUS)


@EACH
def test_the_fields_are_exactly_those_that_the_code_reads(kind):
    known, _ = read_fields(kind)
    unknown = {
        path: schema
        for path, schema in schema_fields(schema_of(kind))
        if path.startswith((".spec", ".status"))
    }
    ours = unknown.keys() - FOR_OTHERS.get(kind, set())
    # The types of what stands below a status that a kind does not have are of no use.
    read = {path for path in known if kind in WITH_STATUS or not path.startswith(".status")}
    left_out = OF_OTHER_TARGETS.get(kind, set()) | UNUSED.get(kind, set())
    assert ours == read - left_out
    assert {path: unknown[path]["type"] for path in ours} == {path: known[path] for path in ours}


@EACH
def test_fields_that_the_code_needs_are_required(kind):
    _, needed = read_fields(kind)
    required = set()

    def collect(schema, path=""):
        required.update(f"{path}.{name}" for name in schema.get("required", ()))
        for name, below in schema.get("properties", {}).items():
            collect(below, f"{path}.{name}")
        if "items" in schema:
            collect(schema["items"], f"{path}[]")

    collect(schema_of(kind))
    assert needed <= required


@EACH
def test_defaults_are_those_of_the_code(kind):
    defaults = {}
    for model in READ[kind]:
        for path, default in _defaults(model):
            defaults.setdefault(path, default)
    given = {
        path: schema["default"]
        for path, schema in schema_fields(schema_of(kind))
        if "default" in schema and path not in FOR_OTHERS.get(kind, ())
    }
    assert given == {path: defaults[path] for path in given}


def _defaults(model, path=""):
    hints = typing.get_type_hints(model)
    for field in structs.fields(model):
        here = f"{path}.{field.encode_name}"
        default = UNSET if field.default is structs.NODEFAULT else field.default
        yield here, [*default] if isinstance(default, tuple) else default
        kind, below = wire_type(hints[field.name])
        if below is not None:
            yield from _defaults(below, here + ("[]" if kind == "array" else ""))


@EACH
def test_every_field_says_what_it_is(kind):
    described = {path: schema.get("description") for path, schema in schema_fields(schema_of(kind))}
    assert [path for path, text in described.items() if not text] == [".metadata"]


@EACH
def test_columns_show_existing_fields(kind):
    fields = {path for path, _ in schema_fields(schema_of(kind))} | {".metadata.creationTimestamp"}
    columns = version_of(kind)["additionalPrinterColumns"]
    paths = {re.sub(r"\[(\*|\?\(.+\))]", "[]", column["jsonPath"]) for column in columns}
    assert paths
    assert paths <= fields


@pytest.mark.parametrize("kind", sorted(WITH_STATUS))
def test_conditions_are_kept_apart_by_their_types(kind):
    conditions = schema_of(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    fields = {field.encode_name for field in structs.fields(Condition)}
    assert conditions["items"]["properties"].keys() == fields


@EACH
def test_rules_say_what_is_wrong(kind):
    def rules(schema):
        yield from schema.get("x-kubernetes-validations", ())
        for below in schema.get("properties", {}).values():
            yield from rules(below)
        if "items" in schema:
            yield from rules(schema["items"])

    checks = list(rules(schema_of(kind)))
    assert checks
    for rule in checks:
        assert rule["message"]
        assert "\n" not in rule["message"]
