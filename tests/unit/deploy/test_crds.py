"""The definitions of Keptn's kinds against ``fixtures/keptn-kinds.yaml``, fact by fact.

These tests prove keptn-spec 1, 1.2.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio.client import models

from helpers.schemas import CRDS, definition

KINDS = yaml.load(
    (Path(__file__).parents[2] / "fixtures/keptn-kinds.yaml").read_text(), yaml.CSafeLoader
)
PATTERNS = {
    r"^0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$": "duration",
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]"
    r"|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$": "quantity",
}
CONSTRAINTS = (
    "default",
    "format",
    "pattern",
    "enum",
    "maximum",
    "minimum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
KNOWN = {
    *CONSTRAINTS,
    "additionalProperties",
    "anyOf",
    "description",
    "items",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
# What a client-side ``kubectl apply`` can keep in its annotation.
MAX_JSON = 256 * 1024
FILES = sorted(path.stem for path in CRDS.glob("*.yaml") if path.stem != "kustomization")
EACH = pytest.mark.parametrize("kind", list(KINDS))
# Newer than Keptn's schema.
LEFT_OUT = {"restartPolicyRules"}


def stored_definition(kind):
    return definition(KINDS[kind]["name"].partition(".")[0])


def found_facts(schema, path=""):
    """All fields of a schema with what the API server checks of them."""
    required = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        yield from field_facts(below, f"{path}.{name}", "!" if name in required else "")


def field_facts(schema, path, mark=""):
    assert schema.keys() <= KNOWN, path
    yield path, " ".join([f"{shown_type(schema)}{mark}", *constraints(schema)])
    yield from found_facts(schema, path)
    if "items" in schema:
        yield from field_facts(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from field_facts(schema["additionalProperties"], f"{path}{{*}}")


def shown_type(schema):
    if schema.get("x-kubernetes-int-or-string"):
        assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        return "int-or-string"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    return schema["type"]


def constraints(schema):
    for name in CONSTRAINTS:
        if name in schema:
            yield f"{name}={as_text(schema[name])}"


def as_text(value):
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(value)
        case "":
            return '""'
        case _:
            return PATTERNS.get(value, str(value))


def is_listed(path):
    """Whether a field is listed: of a container, only the first level is."""
    inside = path.removeprefix(".spec.container")
    return inside == path or (inside.count(".") < 2 and "{*}" not in inside)


def wanted_facts(kind, version):
    entry = KINDS[kind]
    if version == entry["stored"]:
        return {**entry["fields"], **entry.get("ours", {})}
    difference = entry["others"][version]
    gone = tuple(difference.get("without", ()))
    kept = {
        path: fact
        for path, fact in entry["fields"].items()
        if not any(re.match(rf"{re.escape(removed)}($|[.\[{{])", path) for removed in gone)
    }
    return {**kept, **difference.get("with", {})}


def wanted_columns(kind, version):
    entry = KINDS[kind]
    difference = entry.get("others", {}).get(version, {})
    return difference.get("columns", entry.get("columns", []))


def columns(version):
    return [
        f"{column['name']}: {column['jsonPath']}" + (" (wide)" if column.get("priority") else "")
        for column in version.get("additionalPrinterColumns", ())
    ]


def test_every_kind_has_a_file_and_stands_in_the_kustomization():
    listed = yaml.safe_load((CRDS / "kustomization.yaml").read_text())["resources"]
    assert listed == [f"{file}.yaml" for file in FILES]
    keptn = {file for file in FILES if definition(file)["spec"]["group"].endswith(".keptn.sh")}
    assert keptn == {kind["name"].partition(".")[0] for kind in KINDS.values()}


@EACH
def test_names_are_those_that_clients_use(kind):
    custom_resource, entry = stored_definition(kind), KINDS[kind]
    plural, _, group = entry["name"].partition(".")
    short = {"shortNames": entry["short"]} if "short" in entry else {}
    assert custom_resource["metadata"]["name"] == entry["name"]
    assert custom_resource["spec"]["group"] == group
    assert custom_resource["spec"]["scope"] == "Namespaced"
    assert custom_resource["spec"]["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        **short,
    }


@EACH
def test_all_versions_are_served_and_one_is_stored(kind):
    versions = stored_definition(kind)["spec"]["versions"]
    entry = KINDS[kind]
    assert {version["name"] for version in versions} == {entry["stored"], *entry.get("others", ())}
    assert all(version["served"] for version in versions)
    assert [version["name"] for version in versions if version["storage"]] == [entry["stored"]]
    assert all(version["subresources"] == {"status": {}} for version in versions)


@EACH
def test_every_field_is_as_clients_know_it(kind):
    versions = stored_definition(kind)["spec"]["versions"]
    assert versions
    for version in versions:
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["type"] == "object"
        assert "required" not in schema
        facts = dict(found_facts(schema))
        head = {path: facts.pop(path) for path in (".apiVersion", ".kind", ".metadata")}
        assert set(head.values()) == {"string", "object"}
        listed = {path: fact for path, fact in facts.items() if is_listed(path)}
        assert listed == wanted_facts(kind, version["name"]), version["name"]


@EACH
def test_versions_have_rules_only_where_we_add_to_them(kind):
    versions = stored_definition(kind)["spec"]["versions"]
    assert versions
    for version in versions:
        is_ours = version["storage"] and ".spec.type" in KINDS[kind].get("ours", ())
        assert json.dumps(version).count("x-kubernetes-validations") == is_ours, version["name"]


@EACH
def test_columns_are_as_people_know_them(kind):
    versions = stored_definition(kind)["spec"]["versions"]
    assert versions
    for version in versions:
        actual, wanted = columns(version), wanted_columns(kind, version["name"])
        # We add to the version that kubectl asks for, and only behind what is there.
        assert (actual[: len(wanted)] if version["storage"] else actual) == wanted


@pytest.mark.parametrize("name", FILES)
def test_kinds_keep_the_age_that_kubectl_shows_of_those_without_columns(name):
    versions = definition(name)["spec"]["versions"]
    (columns,) = [version["additionalPrinterColumns"] for version in versions if version["storage"]]
    # Keptn's metrics never showed it.
    assert any(column["name"] == "Age" for column in columns) == (name != "keptnmetrics")


def named_fields(path):
    """The fields that a column may show: of a list one of its elements, of a union any."""
    path = re.sub(r"\[(\*|\?\(@\.status!=\"Succeeded\"\))]", "[]", path)
    if union := re.search(r"\[(\'.+\')]", path):
        names = union[1].replace("'", "").split(",")
        return [path.replace(union[0], f".{name}") for name in names]
    return [path]


@EACH
def test_columns_show_existing_fields(kind):
    versions = stored_definition(kind)["spec"]["versions"]
    assert versions
    for version in versions:
        fields = dict(found_facts(version["schema"]["openAPIV3Schema"]))
        paths = [column["jsonPath"] for column in version.get("additionalPrinterColumns", ())]
        named = {field for path in paths for field in named_fields(path)}
        assert named <= {*fields, ".metadata.creationTimestamp"}


@EACH
def test_only_kinds_whose_versions_differ_are_converted_by_us(kind):
    conversion = stored_definition(kind)["spec"].get("conversion")
    if KINDS[kind].get("conversion") != "Webhook":
        assert conversion is None
        return
    assert conversion == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {
                    "name": "harbourmaster-webhook",
                    "namespace": "harbourmaster-system",
                    "path": "/convert",
                    "port": 443,
                }
            },
            "conversionReviewVersions": ["v1"],
        },
    }


@pytest.mark.parametrize("name", FILES)
def test_kubectl_can_apply_it(name):
    assert len(json.dumps(definition(name))) < MAX_JSON


def model_facts(name, path=""):
    """The fields of a kind of Kubernetes' with their types, from its client."""
    model = getattr(models, name)
    for attribute, type_ in model.openapi_types.items():
        field = f"{path}.{model.attribute_map[attribute]}"
        yield from type_facts(type_, field)


def type_facts(type_, field):
    if match := re.fullmatch(r"list\[(.+)\]", type_):
        yield field, "array"
        yield from type_facts(match[1], f"{field}[]")
    elif match := re.fullmatch(r"dict\(str, (.+)\)|dict\[str, (.+)\]", type_):
        yield field, "object"
        below = match[1] or match[2]
        # The client has quantities as strings.
        yield from type_facts("object" if below == "str" else below, f"{field}{{*}}")
    elif hasattr(models, type_):
        yield field, "object"
        yield from model_facts(type_, field)
    else:
        yield field, {"str": "string", "int": "integer", "bool": "boolean"}.get(type_, "")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_a_task_s_container_is_the_whole_of_a_pod_s(version):
    versions = {
        version["name"]: version
        for version in stored_definition("KeptnTaskDefinition")["spec"]["versions"]
    }
    spec = versions[version]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    container = spec["properties"]["container"]
    types = {path: fact.partition(" ")[0].rstrip("!") for path, fact in found_facts(container)}
    # The client has no name for it.
    kinds = {path: "" if kind == "int-or-string" else kind for path, kind in types.items()}
    wanted = {
        path: type_
        for path, type_ in model_facts("V1Container")
        if path[1:].split(".")[0].partition("[")[0] not in LEFT_OUT
    }
    assert kinds.keys() == wanted.keys()
    differing = {path for path in kinds if kinds[path] != wanted[path]}
    # Of a quantity the client knows a string only.
    assert {re.sub(r".*\.", "", path) for path in differing} <= {"divisor"}
