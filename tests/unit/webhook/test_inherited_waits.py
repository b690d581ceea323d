"""Waits in a workload's own metadata, which its pod template inherits (D28)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.gates.waits import INHERITED_KEY, WAIT_FOR_KEY, WAIT_KEYS, inherit_wait
from helpers.admission import OPT_IN, admit, owner
from helpers.objects import cluster_policy, workload

WAIT = {WAIT_FOR_KEY: "job/migrate", "gates.harbourmaster.dev/wait-timeout": "10m"}
PLAIN = [{"metadata": {"name": "ns1"}}]
FORBIDDING = [{"metadata": {"name": "ns1", "labels": {WAIT_FOR_KEY: "disabled"}}}]
WITH_GATES = [{"metadata": {"name": "ns1", "annotations": OPT_IN}}]
KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job")


def template_in(document):
    spec = document["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]


def annotated(own, template=None, kind="Deployment"):
    """A workload with annotations of its own, and of its template."""
    document = workload(kind)
    document["metadata"]["annotations"] = own
    if template is not None:
        template_in(document)["metadata"]["annotations"] = template
    return document


def waits_of(document):
    annotations = template_in(document)["metadata"].get("annotations", {})
    return {key: value for key, value in annotations.items() if key in WAIT_KEYS}


def update(document, **changes):
    """The stored document with other annotations of its own, as it is reviewed again."""
    document["metadata"]["annotations"] = {"example.com/a": "b", **changes}
    return admit(document, namespaces=PLAIN, request={"operation": "UPDATE"}).after


@pytest.mark.parametrize("kind", [*KINDS, "CronJob"])
@pytest.mark.parametrize("namespaces", [PLAIN, WITH_GATES], ids=["plain", "gates"])
@pytest.mark.parametrize("template", [None, {}, {"example.com/team": "tills"}])
def test_a_template_inherits_the_wait_of_its_workload(kind, namespaces, template):
    answer = admit(annotated(WAIT, template, kind), namespaces=namespaces)
    assert waits_of(answer.after) == WAIT
    assert (template or {}).items() <= template_in(answer.after)["metadata"]["annotations"].items()
    assert answer.verdict.codes == ()


def test_a_template_without_metadata_inherits():
    document = annotated(WAIT, kind="Job")
    del template_in(document)["metadata"]
    assert waits_of(admit(document, namespaces=PLAIN).after) == WAIT


def test_policies_and_an_inherited_wait_are_one_patch():
    answer = admit(
        annotated(WAIT), (), cluster_policy(nodeSelector={"disk": "ssd"}), namespaces=PLAIN
    )
    assert template_in(answer.after)["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert waits_of(answer.after) == WAIT


def test_a_wait_of_the_template_stays_and_the_other_is_told():
    template = {WAIT_FOR_KEY: "job/seed"}
    answer = admit(annotated(WAIT, template), namespaces=PLAIN)
    assert answer.is_untouched
    assert answer.verdict.codes == ("gate-wait-shadowed",)
    assert admit(annotated(template, template), namespaces=PLAIN).verdict.codes == ()


def test_a_stored_template_follows_its_workload():
    stored = admit(annotated(WAIT), namespaces=PLAIN).after
    assert waits_of(update(stored, **WAIT)) == WAIT
    changed = {WAIT_FOR_KEY: "job/seed"}
    stored = update(stored, **changed)
    assert waits_of(stored) == changed
    stored = update(stored)
    assert "gates.harbourmaster.dev" not in str(template_in(stored))


def test_a_wait_that_was_written_into_the_template_later_stays():
    stored = admit(annotated(WAIT), namespaces=PLAIN).after
    own = {WAIT_FOR_KEY: "job/other"}
    template_in(stored)["metadata"]["annotations"] |= own
    assert waits_of(update(stored)) == {**WAIT, **own}


def test_the_replica_set_of_a_deployment_keeps_its_template():
    """The Deployment controller compares the two templates."""
    document = annotated(WAIT, kind="ReplicaSet")
    document["metadata"]["ownerReferences"] = [owner("Deployment", "web", controller=True)]
    assert admit(document, namespaces=PLAIN).is_untouched


def test_where_waits_are_forbidden_nothing_is_inherited_and_the_author_is_told():
    answer = admit(annotated(WAIT), namespaces=FORBIDDING)
    assert answer.is_untouched
    assert answer.verdict.codes == ("gate-wait-forbidden",)


def test_a_mistake_is_told_once():
    stored = admit(annotated({WAIT_FOR_KEY: "migrate"}), namespaces=PLAIN).after
    answer = admit(stored, namespaces=PLAIN, request={"operation": "UPDATE"})
    (warning,) = answer.response["warnings"]
    assert f"metadata.annotations[{WAIT_FOR_KEY}]" in warning
    assert "template" not in warning


waits = st.dictionaries(
    st.sampled_from((*WAIT_KEYS, INHERITED_KEY, "example.com/a")), st.sampled_from(("", "a", "b"))
)


def apply_change(template, change):
    kept = {key: value for key, value in template.items() if key not in change.removed}
    return {**kept, **change.added}


@given(own=waits, later=waits, template=waits)
def test_inheritance_is_stable_and_reversible(own, later, template):
    """A second review changes nothing, and the last state of the workload alone decides."""
    first = apply_change(template, inherit_wait(own, template))
    again = inherit_wait(own, first)
    assert (again.added, again.removed) == ({}, ())
    assert set(first.keys() ^ template.keys()) <= {*WAIT_KEYS, INHERITED_KEY}
    second = apply_change(first, inherit_wait(later, first))
    bare = {key: value for key, value in template.items() if key == "example.com/a"}
    if template == bare:
        assert second == apply_change(bare, inherit_wait(later, bare))
