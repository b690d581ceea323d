"""Keptn's kinds on a real API server, converted and validated by our own processes.

Certificates live so shortly here that authorities go and come while the tests run.
"""

from __future__ import annotations

import copy
import json
import time
import uuid

import pytest

from harbourmaster.lifecycle.conversion import UNCONVERTED, VERSIONS
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.installation import Installation
from helpers.cluster import eventually
from helpers.schemas import (
    CHECKS,
    CODE,
    GROUP,
    LISTED,
    SPECS,
    Kinds,
    apply_definitions,
    definition,
    keptn_object,
    versions,
)

pytestmark = pytest.mark.timeout(300)

APPS, APP_VERSIONS = "keptnapps", "keptnappversions"
CONVERTED = (APPS, APP_VERSIONS)
FLAGS = [
    # Nobody else is to write what is looked at here.
    "--controllers=registration",
    "--certificates-ca-lifetime-seconds=60",
    "--certificates-leaf-lifetime-seconds=15",
    "--certificates-publish-seconds=1",
]
BUNDLE = "/spec/conversion/webhook/clientConfig/caBundle"


class Before:
    """State of the plane before any conversion."""

    stored: str
    old: str


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    """A control plane with the definitions and an object, and then with us in it."""
    directory = tmp_path_factory.mktemp("lifecycle-crds")
    with ControlPlane(directory, optional=()) as plane:
        kubectl = plane.kubectl
        apply_definitions(kubectl)
        kinds = Kinds(kubectl, "default")
        kinds.create(keptn_object(definition(APPS), "early", "default"))
        before = Before()
        before.stored = kubectl("get", APPS, "early", check=False)
        before.old = kubectl("get", f"{APPS}.v1alpha3.{GROUP}", "early", check=False)
        with Installation(plane, arguments={"controller": FLAGS}) as installation:
            yield plane, installation, before


@pytest.fixture
def kubectl(planes):
    return planes[0].kubectl


@pytest.fixture
def kinds(request, kubectl):
    """Reads and writes in a namespace of the test's own."""
    # Without a controller manager no namespace gets a service account to wait for.
    name = f"{request.node.originalname[:40].replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    return Kinds(kubectl, name)


def stored_version(plural):
    return next(name for name, version in versions(plural).items() if version["storage"])


def test_without_a_converter_the_stored_version_is_served(planes):
    _, _, before = planes
    assert before.stored.returncode == 0, before.stored.stderr
    assert before.old.returncode != 0
    assert "conversion webhook" in before.old.stderr


def test_what_was_there_before_us_is_converted(kubectl):
    result = json.loads(kubectl("get", f"{APPS}.v1alpha3.{GROUP}", "early", "-o=json").stdout)
    assert result["apiVersion"] == f"{GROUP}/v1alpha3"
    assert result["spec"] == SPECS[APPS]


@pytest.mark.parametrize("plural", sorted(SPECS))
def test_every_version_of_every_kind_is_served(kinds, plural):
    manifest = definition(plural)
    group = manifest["spec"]["group"]
    kinds.create(keptn_object(manifest, "cart", kinds.namespace))
    stored = kinds.read(plural, "cart", stored_version(plural), group)
    assert SPECS[plural].items() <= stored["spec"].items()
    for version in versions(plural):
        cart = kinds.read(plural, "cart", version, group)
        assert cart["apiVersion"] == f"{group}/{version}"
        assert cart["metadata"]["uid"] == stored["metadata"]["uid"]


def test_c87_the_checks_of_an_old_app_live_on_while_v1_is_written(kinds):
    old = keptn_object(definition(APPS), "shop", kinds.namespace, "v1alpha3", **CHECKS)
    kinds.apply(old)
    stored = kinds.read(APPS, "shop")
    assert stored["spec"] == SPECS[APPS]
    assert json.loads(stored["metadata"]["annotations"][UNCONVERTED]) == {"spec": CHECKS}
    patch = json.dumps({"spec": {"version": "2.0"}})
    where = f"--namespace={kinds.namespace}"
    kinds.kubectl("patch", APPS, "shop", where, "--type=merge", f"--patch={patch}")
    again = kinds.read(APPS, "shop", "v1alpha3")
    assert again["spec"] == {**old["spec"], "version": "2.0"}
    assert UNCONVERTED not in again["metadata"]["annotations"]
    # And the same manifest, applied again, only takes the version back.
    kinds.apply(old)
    assert kinds.read(APPS, "shop", "v1alpha2")["spec"] == old["spec"]


@pytest.mark.parametrize("old", VERSIONS[2:])
def test_writing_an_old_version_loses_nothing_of_v1(kinds, old):
    late = {"metadata": {"team": "a"}, "spanLinks": ["00-1-2-01"], "promotionTasks": ["tag"]}
    manifest = keptn_object(definition(APP_VERSIONS), "shop", kinds.namespace, revision=7, **late)
    kinds.create(manifest)
    created = kinds.read(APP_VERSIONS, "shop")
    items = [{"definitionName": "seed", "name": "pre-seed-12345", "status": "Succeeded"}]
    status = {
        "currentPhase": "PromotionTasks",
        "preDeploymentTaskStatus": items,
        "preDeploymentEvaluationTaskStatus": items,
        "promotionStatus": "Progressing",
        "promotionTaskStatus": items,
    }
    before = kinds.replace({**created, "status": status}, "status")
    read = kinds.read(APP_VERSIONS, "shop", old)
    assert not {*late} & read["spec"].keys()
    read["metadata"]["labels"] = {"seen": "yes"}
    kinds.replace(read)
    read = kinds.read(APP_VERSIONS, "shop", old)
    read["status"]["currentPhase"] = "Completed"
    kinds.replace(read, "status")
    after = kinds.read(APP_VERSIONS, "shop")
    assert after["spec"] == before["spec"] == {**created["spec"]}
    assert after["status"] == {**before["status"], "currentPhase": "Completed"}
    assert after["metadata"]["labels"] == {"seen": "yes"}
    assert "annotations" not in after["metadata"]


def test_a_long_list_is_converted(kinds):
    manifest = keptn_object(definition(APPS), "shop", kinds.namespace)
    items = []
    for index in range(300):
        item = copy.deepcopy(manifest)
        item["metadata"]["name"] = f"shop-{index}"
        items.append(item)
    kinds.create({"apiVersion": "v1", "kind": "List", "items": items})
    path = f"/apis/{GROUP}/v1alpha3/namespaces/{kinds.namespace}/{APPS}"
    listed = json.loads(kinds.kubectl("get", "--raw", path).stdout)["items"]
    assert len(listed) == 300
    assert {obj["apiVersion"] for obj in listed} == {f"{GROUP}/v1alpha3"}


def test_what_was_stored_in_an_old_version_is_read_in_every_other(kinds, kubectl):
    """Objects are stored as Keptn of that time has left them."""
    crd = f"{APPS}.{GROUP}"
    keep_in(kubectl, crd, "v1alpha3")
    try:
        old = keptn_object(definition(APPS), "ancient", kinds.namespace, "v1alpha3", **CHECKS)
        kinds.create(old)
    finally:
        keep_in(kubectl, crd, "v1")
    assert kinds.read(APPS, "ancient")["spec"] == SPECS[APPS]
    for version in ("v1alpha2", "v1alpha3"):
        assert kinds.read(APPS, "ancient", version)["spec"] == old["spec"]


def keep_in(kubectl, crd, version):
    result = json.loads(kubectl("get", "crd", crd, "-o=json").stdout)
    patch = [
        {"op": "replace", "path": f"/spec/versions/{index}/storage", "value": name == version}
        for index, name in enumerate(entry["name"] for entry in result["spec"]["versions"])
    ]
    kubectl("patch", "crd", crd, "--type=json", f"--patch={json.dumps(patch)}")


def task_definition(kinds, version="v1", **spec):
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "KeptnTaskDefinition",
        "metadata": {"name": "seed", "namespace": kinds.namespace},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "spec: Invalid value: null: forbidden: either container, python or deno has to be"),
        ({"container": {"name": "a"}, "deno": CODE}, "only one of container, python and deno"),
    ],
)
def test_c68_one_that_cannot_is_refused(kinds, spec, text):
    refused = kinds.create(task_definition(kinds, **spec), check=False)
    assert refused.returncode != 0
    assert text in refused.stderr
    kinds.create(task_definition(kinds, deno=CODE))
    stored = kinds.read("keptntaskdefinitions", "seed")
    changed = json.dumps({**stored, "spec": spec})
    again = kinds.kubectl("replace", "-f=-", stdin=changed, check=False)
    assert text in again.stderr


def test_a_program_sees_which_field_it_is(kinds):
    path = f"/apis/{GROUP}/v1/namespaces/{kinds.namespace}/keptntaskdefinitions"
    body = json.dumps(task_definition(kinds))
    refused = kinds.kubectl("create", "--raw", path, "-f=-", stdin=body, check=False)
    assert "is invalid: spec: Invalid value: null" in refused.stderr
    verbose = kinds.kubectl("create", "-f=-", "-v=8", stdin=body, check=False).stderr
    assert '"code":422' in verbose.replace("\\", "").replace(" ", "")
    assert '"field":"spec"' in verbose.replace("\\", "").replace(" ", "")


def test_a_definition_can_always_be_deleted(kinds):
    kinds.create(task_definition(kinds, deno=CODE))
    inside = f"--namespace={kinds.namespace}"
    kinds.kubectl("delete", "keptntaskdefinition", "seed", inside)
    assert kinds.kubectl("get", "keptntaskdefinitions", inside, "-o=name").stdout == ""


@pytest.mark.parametrize("plural", CONVERTED)
@pytest.mark.parametrize("harm", ["remove", "replace"])
def test_a_bundle_that_is_harmed_is_repaired(kinds, kubectl, plural, harm):
    kinds.create(keptn_object(definition(plural), "shop", kinds.namespace))
    crd = f"{plural}.{GROUP}"
    patch = {"op": harm, "path": BUNDLE}
    if harm == "replace":
        bundle = "-o=jsonpath={.webhooks[0].clientConfig.caBundle}"
        good = kubectl("get", "mutatingwebhookconfiguration", "harbourmaster", bundle).stdout
        # A bundle that parses but is foreign: the first certificate with its end cut off.
        patch["value"] = good[: len(good) // 8 * 4]
    kubectl("patch", "crd", crd, "--type=json", f"--patch={json.dumps([patch])}", check=False)
    path = f"/apis/{GROUP}/v1alpha3/namespaces/{kinds.namespace}/{plural}/shop"
    eventually(lambda: not kubectl("get", "--raw", path, check=False).returncode)


def test_c98_authorities_change_and_no_conversion_fails(kinds, kubectl):
    kinds.create(keptn_object(definition(APPS), "shop", kinds.namespace))

    def authority():
        where = "--namespace=harbourmaster-system"
        field = "-o=jsonpath={.data.ca\\.crt}"
        return kubectl("get", "secret", "harbourmaster-webhook-cert", where, field).stdout[:200]

    first = authority()
    deadline = time.monotonic() + 120
    asked = 0
    while authority() == first:
        assert time.monotonic() < deadline
        for _ in range(5):
            assert kinds.read(APPS, "shop", "v1alpha3")["spec"]["workloads"] == LISTED
            asked += 1
    # The replica reads the new certificate a moment later.
    until = time.monotonic() + 5
    while time.monotonic() < until:
        kinds.read(APPS, "shop", "v1alpha1")
        asked += 1
    assert asked > 20
