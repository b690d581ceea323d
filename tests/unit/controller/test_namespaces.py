from __future__ import annotations

import asyncio
import json

import jsonpatch
import msgspec
import pytest

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.controller.caches import decode_namespace
from harbourmaster.controller.namespaces import agrees, decide_patch, start
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings

LABEL = "gates.harbourmaster.dev/enabled"
ANNOTATION = "keptn.sh/lifecycle-toolkit"
ENABLED = {ANNOTATION: "enabled"}
PATH = "/namespaces/"


def namespace(name="prod", *, annotations=None, labels=None, **metadata):
    named = {"kubernetes.io/metadata.name": name}
    return {
        "metadata": {
            "name": name,
            "annotations": annotations,
            "labels": {**named, **(labels or {})},
            **metadata,
        }
    }


def namespace_object(**fields):
    return {**namespace(**fields), "apiVersion": "v1", "kind": "Namespace"}


def decide_on(value):
    return decide_patch(decode_namespace(json.dumps(value).encode()))


@pytest.mark.parametrize(
    ("annotation", "label", "mirrored"),
    [
        ("enabled", None, "true"),
        ("enabled", "false", "true"),
        ("enabled", "true", "true"),
        ("Enabled", None, None),
        ("enabled ", None, None),
        ("true", "true", None),
        ("", "true", None),
        (None, "true", None),
        (None, "false", None),
        (None, None, None),
    ],
)
def test_the_label_follows_the_annotation_to_the_letter(annotation, label, mirrored):
    annotations = None if annotation is None else {ANNOTATION: annotation}
    labels = None if label is None else {LABEL: label}
    before = namespace_object(annotations=annotations, labels=labels, resourceVersion="7")
    after = jsonpatch.apply_patch(before, decide_on(before))
    assert after["metadata"]["labels"].pop(LABEL, None) == mirrored
    before["metadata"]["labels"].pop(LABEL, None)
    # Nothing else is ever touched.
    assert after == before


def test_a_namespace_without_any_label_gets_its_first():
    before = {"metadata": {"name": "a", "resourceVersion": "7", "annotations": ENABLED}}
    after = jsonpatch.apply_patch(before, decide_on(before))
    assert after["metadata"]["labels"] == {LABEL: "true"}


def test_a_patch_is_for_the_version_that_was_seen():
    (first, *_) = decide_on(namespace_object(annotations=ENABLED, resourceVersion="7"))
    assert first == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def test_a_namespace_that_ends_is_left_alone():
    gone = namespace_object(annotations=ENABLED, deletionTimestamp="2026-03-01T00:00:00Z")
    assert decide_on(gone) == []


def controller_of(client, events, metrics, excluded):
    settings = msgspec.convert({"webhook": {"excludedNamespaces": excluded}}, ControllerSettings)
    runtime = Runtime(settings, client, "harbour", events=events, metrics=metrics)
    (controller,) = start(runtime).controllers
    return controller


@pytest.fixture
def controller(client, events, metrics):
    return controller_of(client, events, metrics, ["kube-system"])


def label_of(api, name="prod"):
    return api.get(NAMESPACES, name)["metadata"]["labels"].get(LABEL)


async def test_a_label_set_by_hand_is_removed_and_the_event_names_the_annotation(
    api, controller, lead, events
):
    api.put(NAMESPACES, namespace(labels={LABEL: "true"}))
    lead(controller)
    assert await events.until("GatesLabelRemoved") == (
        "label gates.harbourmaster.dev/enabled=true is removed, because it follows the annotation "
        "keptn.sh/lifecycle-toolkit=enabled, or the label "
        "gates.harbourmaster.dev/wait-for=required, and both are missing: set one of them instead"
    )
    assert events.sent[0][:3] == ("Namespace", "prod", "Normal")


async def test_an_opt_in_that_has_no_effect_is_told_once_until_it_changes(
    api, controller, lead, events
):
    api.put(NAMESPACES, namespace(annotations={ANNOTATION: "true"}))
    lead(controller)
    assert await events.until("GatesOptInUnknown") == (
        'namespace "prod" has no gates: annotation keptn.sh/lifecycle-toolkit is "true": '
        "kubectl annotate --overwrite namespace prod keptn.sh/lifecycle-toolkit=enabled"
    )
    assert events.sent[0][:3] == ("Namespace", "prod", "Warning")
    api.put(NAMESPACES, namespace(annotations={ANNOTATION: "true"}, labels={"team": "a"}))
    api.put(NAMESPACES, namespace(annotations=ENABLED))
    await api.until_seen("patch", PATH)
    assert len(events.sent) == 1
    api.put(NAMESPACES, namespace(labels={ANNOTATION: "enabled"}))
    assert "is a label" in await events.until("GatesOptInUnknown", 2)


async def test_excluded_namespaces_are_never_touched(api, controller, lead):
    api.put(NAMESPACES, namespace("kube-system", annotations=ENABLED))
    api.put(NAMESPACES, namespace("harbour", labels={LABEL: "true"}))
    api.put(NAMESPACES, namespace("prod", annotations=ENABLED))
    lead(controller)
    await api.until_seen("patch", "prod")
    assert len(api.seen("patch")) == 1


async def test_thousands_of_namespaces_that_agree_cost_no_request(api, controller, lead):
    for number in range(2000):
        labels = {LABEL: "true"} if number % 2 else {}
        annotations = ENABLED if number % 2 else None
        api.put(NAMESPACES, namespace(f"n{number}", annotations=annotations, labels=labels))
    api.put(NAMESPACES, namespace("last", annotations=ENABLED))
    lead(controller)
    await api.until_seen("patch", "last")
    assert len(api.seen("patch")) == 1
    assert api.seen("get") == []


async def test_only_metadata_is_asked_for(api, controller, lead):
    lead(controller)
    await api.until_watched()
    assert all("PartialObjectMetadata" in seen.headers["Accept"] for seen in api.requests)


async def test_a_stale_version_is_read_again_and_decided_anew(api, client, events, metrics):
    api.put(NAMESPACES, namespace(annotations=ENABLED))
    controller = controller_of(client, events, metrics, [])
    (reflector,) = controller.reflectors
    reflecting = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    await api.until_watched()
    api.silence()
    # The watch says nothing of it: the annotation is gone, and so is the reason for a label.
    api.put(NAMESPACES, namespace(annotations=None))
    leading = asyncio.create_task(controller.lead())
    await api.until_seen("get", PATH)
    assert len(api.seen("patch")) == 1
    assert label_of(api) is None
    for task in (leading, reflecting):
        task.cancel()
    await asyncio.gather(leading, reflecting, return_exceptions=True)


async def test_a_refused_patch_is_tried_again(api, controller, lead, metrics):
    api.put(NAMESPACES, namespace(annotations=ENABLED))
    api.fail_next("patch", PATH, 2, status=500)
    lead(controller)
    await api.until_seen("patch", PATH, 3)
    await asyncio.sleep(0)
    assert label_of(api) == "true"
    errors = metrics.reconcile_errors.labels("namespaces", "ServerError")
    assert errors._value.get() == 2


async def test_a_namespace_that_vanishes_is_no_fault(api, controller, lead, metrics):
    api.put(NAMESPACES, namespace("gone", annotations=ENABLED))
    api.put(NAMESPACES, namespace("prod", annotations=ENABLED))
    api.fail_next("patch", "gone", 1, status=404)
    lead(controller)
    await api.until_seen("patch", "prod")
    assert not next(iter(metrics.reconcile_errors.collect())).samples


def test_agreement_is_told_from_the_label_alone():
    def is_right(**metadata):
        return agrees(decode_namespace(json.dumps(namespace_object(**metadata)).encode()))

    assert is_right(annotations=ENABLED, labels={LABEL: "true"})
    assert not is_right(labels={LABEL: "true"})
