"""``harbourmaster migrate --shadow``: the report of shadow mode, and what Keptn has stored."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import msgspec
import pytest

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    CONFIG_MAPS,
    DEFINITIONS,
    NAMESPACES,
    PODS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.migrate import shadow
from harbourmaster.cli.migrate.shadow import STORED, Stored, stored_differences
from harbourmaster.webhook.shadow import (
    BOTH,
    CONFIG_MAP,
    INTENDED,
    NOT_BY_TEMPLATE,
    ONLY_OURS,
    ONLY_THEIRS,
    REFUSED,
    REPORT,
    Difference,
    ShadowReport,
)
from helpers import lifecycle_objects as objects

MANUAL = Path(__file__).parents[3] / "docs/migration/shadow.md"
HOME = "harbourmaster-system"
KNOWN = Difference("Pod", "a", "x", "spec.tolerations", "r", "1", "", intended="because")
FAULT = Difference("Deployment", "a", "web", "spec.nodeSelector", "r", "1", "2", objects=7)
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="front-5d9c", uid="rs-1")
CHECKS = {"keptn.sh/pre-deployment-tasks": "two, one"}


def pod(name="front-1", *, version="7", **annotations):
    """A pod of the workload that the helper's objects are of, as Keptn tracks it."""
    given = {
        "keptn.sh/app": "shop",
        "keptn.sh/workload": "front",
        "keptn.sh/version": version,
        **annotations,
    }
    labels = {"pod-template-hash": "5d9c"}
    return objects.metadata(name, owner=OWNER, annotations=given, labels=labels)


def stored_objects(*pods, **more):
    app = objects.app(generation=1)
    return Stored(
        pods=pods,
        **{
            "workloads": (objects.workload(),),
            "versions": (objects.workload_version(),),
            "apps": (app,),
            "app_versions": (objects.app_version(),),
            **more,
        },
    )


def find_differences(*pods, **more):
    return [
        (
            f"{difference.kind} {difference.namespace}/{difference.name}",
            difference.field,
            difference.ours,
            difference.theirs,
        )
        for difference in stored_differences(stored_objects(*pods, **more))
    ]


def test_objects_as_they_are_made_here_are_no_difference():
    assert find_differences(pod()) == []


def test_a_workload_version_of_another_name_is_a_difference_of_the_deployment():
    expected = [("Deployment prod/front", "KeptnWorkloadVersion", "shop-front-8", "")]
    assert find_differences(pod(version="8")) == expected


def test_pods_of_one_workload_are_one_difference():
    (difference,) = stored_differences(
        stored_objects(pod(version="8"), pod("front-2", version="8"))
    )
    assert (difference.objects, difference.reason, difference.intended) == (2, STORED, "")


def test_other_checks_are_a_difference_in_whatever_order_they_are():
    version = objects.workload_version(pre_deployment_tasks=("one", "two"))
    assert find_differences(pod(**CHECKS), versions=(version,)) == []
    field = "KeptnWorkloadVersion spec.preDeploymentTasks"
    assert find_differences(pod(**CHECKS)) == [("Deployment prod/front", field, "one, two", "")]


def test_a_pod_that_keptn_does_not_track_is_no_difference():
    assert find_differences(pod(version="")) == []
    assert find_differences(objects.metadata("bare", annotations=pod().annotations)) == []


def test_an_app_without_the_version_of_its_generation_is_a_difference():
    app = objects.app(generation=2)
    ((name, field, ours, theirs),) = find_differences(apps=(app,))
    assert (name, field, theirs) == ("KeptnApp prod/shop", "KeptnAppVersion", "")
    assert ours.startswith("shop-1-")


def test_another_version_of_a_composed_app_is_a_difference():
    app = objects.app(generation=1, labels={"app.kubernetes.io/managed-by": "keptn"})
    assert find_differences(apps=(app,)) == [("KeptnApp prod/shop", "spec.version", "7", "1")]


def definition(resource):
    names = {"plural": resource.plural, "kind": resource.kind}
    version = {"name": resource.version, "served": True, "storage": True}
    spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": resource.name}, "spec": spec}


@pytest.fixture
def arguments():
    return argparse.Namespace(installed_in=HOME, output="json")


@pytest.fixture
def report(api):
    """Return a function that stores a report."""

    def store(*differences, **counts):
        text = msgspec.json.encode(ShadowReport(counts, differences)).decode()
        metadata = {"name": CONFIG_MAP, "namespace": HOME}
        api.put(CONFIG_MAPS, {"metadata": metadata, "data": {REPORT: text}})

    return store


async def test_without_shadow_mode_the_command_to_install_it_is_printed(client, arguments, capsys):
    assert await shadow.run(arguments, client) == 2
    assert "run make deploy-shadow" in capsys.readouterr().err


async def test_a_report_without_data_is_empty(api, client, arguments, capsys):
    api.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP, "namespace": HOME}})
    assert await shadow.run(arguments, client) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []


async def test_a_report_that_cannot_be_read_is_one_line(api, client, arguments, capsys):
    metadata = {"name": CONFIG_MAP, "namespace": HOME}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": {REPORT: "{"}})
    assert await shadow.run(arguments, client) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"ConfigMap {HOME}/{CONFIG_MAP}" in line


async def test_intended_differences_alone_are_a_success(client, arguments, report):
    report(KNOWN, different=1)
    assert await shadow.run(arguments, client) == 0
    report(KNOWN, FAULT, different=8)
    assert await shadow.run(arguments, client) == 1


async def test_differences_that_are_not_intended_come_first(client, arguments, report, capsys):
    report(KNOWN, FAULT, equal=3, different=8)
    arguments.output = "text"
    await shadow.run(arguments, client)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Objects: 3 equal, 8 different"
    assert lines[1] == "Deployment a/web spec.nodeSelector: r (objects: 7)"
    assert "    intended: because" in lines[4:]


async def test_differences_beyond_the_limit_are_a_failure(client, arguments, report):
    report(more=1)
    assert await shadow.run(arguments, client) == 1


async def test_objects_of_keptn_are_read_and_nothing_is_written(
    api, client, arguments, report, capsys
):
    report()
    api.put(NAMESPACES, {"metadata": {"name": "prod", "annotations": GATED}})
    api.put(NAMESPACES, {"metadata": {"name": "other"}})
    everything = stored_objects()
    for resource, items in (
        (WORKLOADS, everything.workloads),
        (WORKLOAD_VERSIONS, everything.versions),
        (APPS, everything.apps),
        (APP_VERSIONS, everything.app_versions),
    ):
        api.put(DEFINITIONS, definition(resource))
        for item in items:
            api.put(resource, msgspec.to_builtins(item))
    obj = msgspec.to_builtins(pod(version="8"))
    api.put(PODS, {"metadata": obj})
    api.put(PODS, {"metadata": {**obj, "namespace": "other"}})
    assert await shadow.run(arguments, client) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert (difference["namespace"], difference["ours"]) == ("prod", "shop-front-8")
    assert {request.method for request in api.requests} == {"GET"}


GATED = {"keptn.sh/lifecycle-toolkit": "enabled"}


def test_the_manual_lists_every_reason():
    section = MANUAL.read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \|$", section, re.MULTILINE)
    unknown = [ONLY_OURS, NOT_BY_TEMPLATE, ONLY_THEIRS, BOTH, REFUSED, STORED]
    assert listed == [*unknown, *INTENDED]
