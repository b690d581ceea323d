"""Whether the objects are there and ready for which pods wait."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api import resources
from harbourmaster.api.resources import of_kind
from harbourmaster.gates.waits import KINDS, ON_TIMEOUT_KEY, TIMEOUT_KEY, WAIT_FOR_KEY, waits_of
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.wait_items import (
    LOOKED_UP,
    Obstacle,
    report_on,
    resources_of,
    wait_report,
)
from harbourmaster.lifecycle.wait_targets import MAX_DOCUMENT, target_of

WIDGETS = of_kind("example.com", "Widget")
ALL = {**KINDS, "widgets.example.com": WIDGETS}
WAITED = "gates.harbourmaster.dev/waited"


class Objects:
    """Objects by their kind, as tests give them."""

    def __init__(self, **stored):
        self.found = {
            resource: [
                target_of(resource, msgspec.json.encode(obj), whole=[obj["metadata"]["name"]])
                for obj in given
            ]
            for resource in (*ALL.values(), resources.SLICES)
            if (given := stored.get(resource.plural))
        }
        self.unread = {}

    def find(self, resource, name):
        return next((target for target in self.all(resource) if target.name == name), None)

    def all(self, resource):
        return self.found.get(resource, ())

    def find_by_label(self, resource, key, value):
        return [target for target in self.all(resource) if target.labels.get(key) == value]

    def obstacle(self, resource):
        return self.unread.get(resource.plural)


def thing(name="x", *, labels=None, generation=1, deleted=False, spec=None, **status):
    metadata = {"name": name, "generation": generation, "labels": labels or {}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    return {"metadata": metadata, "spec": spec or {}, "status": status}


def condition(name, status="True", **fields):
    return {"conditions": [{"type": name, "status": status, **fields}]}


def endpoints(service, *ready):
    metadata = {"name": f"{service}-1", "labels": {"kubernetes.io/service-name": service}}
    return {"metadata": metadata, "endpoints": [{"conditions": conditions} for conditions in ready]}


def item(text):
    (first,) = waits_of({WAIT_FOR_KEY: text}).items
    return first


def report(text, **stored):
    return report_on(item(text), ALL, Objects(**stored), suggests=True)


MET = [
    ("job/x", {"jobs": [thing(**condition("Complete"))]}),
    ("deployment/x", {"deployments": [thing(observedGeneration=1, **condition("Available"))]}),
    (
        "statefulset/x",
        {"statefulsets": [thing(spec={"replicas": 2}, observedGeneration=1, availableReplicas=2)]},
    ),
    (
        "daemonset/x",
        {"daemonsets": [thing(observedGeneration=1, desiredNumberScheduled=1, numberAvailable=1)]},
    ),
    ("daemonset/x", {"daemonsets": [thing(observedGeneration=1)]}),
    ("pod/x", {"pods": [thing(**condition("Ready"))]}),
    ("pod/a=b", {"pods": [thing("y"), thing("z", labels={"a": "b"}, **condition("Ready"))]}),
    ("pod/a=", {"pods": [thing("z", labels={"a": ""}, **condition("Ready"))]}),
    ("service/x", {"services": [thing()], "endpointslices": [endpoints("x", {"ready": True})]}),
    ("service/x", {"services": [thing()], "endpointslices": [endpoints("x", {})]}),
    ("configmap/x", {"configmaps": [thing()]}),
    ("secret/x", {"secrets": [thing()]}),
    (
        "crd/x.example.com",
        {"customresourcedefinitions": [thing("x.example.com", **condition("Established"))]},
    ),
    ("widgets.example.com/x", {"widgets": [thing()]}),
    ("widgets.example.com/x#condition=Ready", {"widgets": [thing(**condition("Ready"))]}),
    (
        "widgets.example.com/x#condition=Ready:false",
        {"widgets": [thing(**condition("Ready", "False"))]},
    ),
    ("widgets.example.com/x#field=status.phase:Active", {"widgets": [thing(phase="Active")]}),
    ("widgets.example.com/x#field=status.count:3", {"widgets": [thing(count=3)]}),
    ("widgets.example.com/x#field=status.on:true", {"widgets": [thing(on=True)]}),
    ("widgets.example.com/x#field=status.a.1.b:c", {"widgets": [thing(a=[{}, {"b": "c"}])]}),
    ("job/x#condition=Failed", {"jobs": [thing(**condition("Failed"))]}),
    ("optional:job/x", {}),
    ("optional:pod/a=b", {"pods": [thing(**condition("Ready"))]}),
]
PENDING = [
    ("job/x", {}, "does not exist"),
    ("job/migrat", {"jobs": [thing("migrate")]}, 'does not exist: did you mean "migrate"?'),
    ("job/x", {"jobs": [thing()]}, "is not complete"),
    ("optional:job/x", {"jobs": [thing()]}, "is not complete"),
    ("deployment/x", {"deployments": [thing(observedGeneration=1, spec={"replicas": 3})]},
     "has 0 of 3 replicas available"),
    ("deployment/x", {"deployments": [thing(generation=2, observedGeneration=1,
                                            **condition("Available"))]},
     "is not observed yet since its last change"),
    ("statefulset/x", {"statefulsets": [thing(observedGeneration=1)]},
     "has 0 of 1 replicas available"),
    ("daemonset/x", {"daemonsets": [thing(observedGeneration=1, desiredNumberScheduled=2)]},
     "has 0 of 2 pods available"),
    ("pod/x", {"pods": [thing(deleted=True, **condition("Ready"))]}, "is being deleted"),
    ("pod/a=b", {"pods": [thing(labels={"a": "b"})]}, "none of 1 pods is ready"),
    ("pod/a=b", {"pods": [thing(labels={"a": "c"}, **condition("Ready"))]},
     "no pod has this label"),
    ("service/x", {"services": [thing()]}, "has no ready endpoint"),
    ("service/x", {"services": [thing()], "endpointslices": [
        endpoints("x", {"ready": False}), endpoints("y", {"ready": True})
    ]}, "has no ready endpoint"),
    ("service/x", {"endpointslices": [endpoints("x", {})]}, "does not exist"),
    ("crd/x", {"customresourcedefinitions": [thing()]}, "is not established"),
    ("widgets.example.com/x#condition=Ready", {"widgets": [thing()]}, "condition Ready is missing"),
    ("widgets.example.com/x#condition=Ready", {"widgets": [
        thing(**condition("Ready", "False", reason="Broken"))
    ]}, "condition Ready is False (Broken)"),
    ("widgets.example.com/x#field=status.phase:Active", {"widgets": [thing(phase="New")]},
     "status.phase is not Active"),
    ("widgets.example.com/x#field=status.phase:Active", {"widgets": [thing()]},
     "status.phase is not Active"),
    ("widgets.example.com/x#field=status.a.5:c", {"widgets": [thing(a=["c"])]},
     "status.a.5 is not c"),
    ("widgets.example.com/x#condition=Ready", {"widgets": [thing(conditions="strange")]},
     "condition Ready is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "stored"), MET)
def test_an_item_is_met(text, stored):
    given = report(text, **stored)
    assert (given.state, given.text) == ("Met", "")


@pytest.mark.parametrize(("text", "stored", "why"), PENDING)
def test_an_item_is_not_met_yet(text, stored, why):
    given = report(text, **stored)
    assert (given.item, given.state, given.text) == (
        text.removeprefix("optional:"),
        "Pending",
        why,
    )


def test_a_failed_job_blocks_with_its_reason():
    failed = condition("Failed", reason="BackoffLimitExceeded", message="Job has failed")
    given = report("job/x", jobs=[thing(**failed)])
    assert (given.state, given.text) == (
        "Blocked",
        "failed: BackoffLimitExceeded: Job has failed",
    )


def test_a_kind_that_settings_do_not_name_blocks():
    given = report_on(item("secret/x"), {}, Objects(secrets=[thing()]))
    assert given.state == "Blocked"
    assert "lifecycle.waitKinds" in given.text


@pytest.mark.parametrize("unread", ["services", "endpointslices"])
def test_nothing_is_met_while_its_objects_are_not_known(unread):
    objects = Objects(services=[thing()], endpointslices=[endpoints("x", {})])
    objects.unread = {unread: LOOKED_UP}
    for text in ("service/x", "optional:service/y"):
        assert report_on(item(text), ALL, objects).state == "Unknown"


@pytest.mark.parametrize(
    ("kind", "text", "state"),
    [
        ("forbidden", "widgets.example.com/x", "Blocked"),
        ("missing", "widgets.example.com/x", "Pending"),
        ("missing", "optional:widgets.example.com/x", "Met"),
        ("unread", "optional:widgets.example.com/x", "Unknown"),
    ],
)
def test_what_a_kind_that_can_not_be_read_means(kind, text, state):
    objects = Objects(widgets=[thing()])
    objects.unread = {"widgets": Obstacle(kind, "why")}
    assert report_on(item(text), ALL, objects).state == state


def test_a_time_out_does_not_count_what_is_not_known():
    pod = waiting(timeout="10s", on_timeout="Fail")
    given = wait_report(pod, {}, 60.0)
    assert (given.is_over, given.is_expired, given.blocked, given.left) == (False, False, "", None)


def test_no_field_of_a_large_object_is_tested_nor_told():
    large = thing(note="x" * MAX_DOCUMENT, phase="Active")
    given = report("widgets.example.com/x#field=status.phase:Active", widgets=[large])
    assert given.text == "is too large to test a field: more than 128 KiB"
    given = report("widgets.example.com/x#field=status.phase:New", widgets=[thing(phase="hidden")])
    assert given.text == "status.phase is not New"


@pytest.mark.parametrize(
    ("text", "plural", "status"),
    [
        ("job/x", "jobs", condition("Complete")),
        ("job/x", "jobs", condition("Failed")),
        ("configmap/x", "configmaps", {}),
        ("widgets.example.com/x#condition=Ready", "widgets", condition("Ready")),
    ],
)
def test_an_object_that_is_being_deleted_does_not_count(text, plural, status):
    given = report(text, **{plural: [thing(deleted=True, **status)]})
    assert (given.state, given.text) == ("Pending", "is being deleted")


def test_what_is_read_for_a_service():
    assert resources_of(item("service/x"), ALL) == (resources.SERVICES, resources.SLICES)
    service = msgspec.json.encode(thing(spec={"selector": {"app": "a"}}))
    assert target_of(resources.SERVICES, service).selector == {"app": "a"}


def waiting(text="job/x, pod/a=b", *, waited="", owner=None, name="p", labels=None, **limits):
    keys = {"timeout": TIMEOUT_KEY, "on_timeout": ON_TIMEOUT_KEY}
    annotations = {
        WAIT_FOR_KEY: text,
        "gates.harbourmaster.dev/checks": "none",
        **{keys[key]: value for key, value in limits.items()},
    }
    if waited:
        annotations[WAITED] = waited
    metadata = {"name": name, "namespace": "ns", "annotations": annotations, "labels": labels or {}}
    if owner:
        kind, owner_name = owner
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": owner_name}
        ]
    gated = {"schedulingGates": [{"name": "keptn-prechecks-gate"}]}
    return decode_whole(msgspec.json.encode({"metadata": metadata, "spec": gated}))


def reports(pod, **stored):
    return {item: report_on(item, ALL, Objects(**stored)) for item in pod.wait_conditions.items}


ALL_THERE = {
    "jobs": [thing(**condition("Complete"))],
    "pods": [thing(labels={"a": "b"}, **condition("Ready"))],
}
FAILED = {"jobs": [thing(**condition("Failed"))]}


@pytest.mark.parametrize(
    ("limits", "age", "states", "expected"),
    [
        ({}, 5.0, ALL_THERE, (True, "", False, None)),
        ({}, 5.0, {}, (False, "", False, None)),
        ({"timeout": "10s"}, 5.0, {}, (False, "", False, 5.0)),
        ({"timeout": "10s"}, 10.0, {}, (False, "", True, None)),
        ({"timeout": "10s"}, 10.0, ALL_THERE, (True, "", False, None)),
        ({"timeout": "10s", "on_timeout": "Release"}, 9.0, {}, (False, "", False, 1.0)),
        ({"timeout": "10s", "on_timeout": "Release"}, 10.0, {}, (True, "", True, None)),
        ({"timeout": "10s", "on_timeout": "Release"}, 10.0, FAILED, (True, "", True, None)),
        (
            {"timeout": "10s", "on_timeout": "Fail"},
            10.0,
            {},
            (False, f"it waited longer than 10s ({TIMEOUT_KEY})", True, None),
        ),
        ({}, 5.0, FAILED, (False, "job/x: failed", False, None)),
        ({"waited": "met"}, 5.0, {}, (True, "", False, None)),
        (
            {"waited": "timed-out", "timeout": "10s", "on_timeout": "Fail"},
            11.0,
            ALL_THERE,
            (False, f"it waited longer than 10s ({TIMEOUT_KEY})", True, None),
        ),
    ],
)
def test_how_the_waits_of_a_pod_stand(limits, age, states, expected):
    pod = waiting(**limits)
    given = wait_report(pod, reports(pod, **states), age)
    assert (given.is_over, given.blocked, given.is_expired, given.left) == expected


def test_a_fault_blocks_whatever_is_there_and_however_late_it_is():
    pod = waiting("job/x, mistake", timeout="1s", on_timeout="Release")
    given = wait_report(pod, reports(pod, **ALL_THERE), 5.0)
    assert (given.is_over, given.is_expired) == (False, False)
    assert '"mistake" is not an object' in given.blocked


def test_an_item_without_a_report_is_not_met():
    given = wait_report(waiting(), {}, 1.0)
    assert not given.is_over
    assert {item.text for item in given.items} == {"is being looked up"}


def test_a_text_names_three_items():
    pod = waiting("job/a job/b job/c job/d job/e")
    text = wait_report(pod, reports(pod), 1.0).text
    assert text.endswith("job/c: does not exist; and 2 more")
    assert "job/d" not in text
