"""With our ignore rules an object equals its manifest in Git, whatever policies change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.cli.gitops import HANDLED, jq_expressions, json_pointers, scopes_of
from harbourmaster.cli.offline import render_manifest
from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from helpers.ignore_rules import forget, forget_pointers, without_empty
from helpers.properties import TIMEOUT, cases, pod_specs, policies

KINDS = {kind.name: kind for kind in HANDLED if kind.name in {"Pod", "Deployment", "CronJob"}}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

many = settings(max_examples=cases(1000))


def manifest(kind, spec):
    """An object of the kind in ns1, as a user writes it: without null or empty fields."""
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    group = f"{kind.group}/" if kind.group else ""
    type_meta = {"apiVersion": f"{group}{kind.version}", "kind": kind.name}
    metadata = {"name": "one", "namespace": "ns1"}
    if kind.shape == "pod":
        return {**type_meta, **without_empty(pod), "metadata": {**pod["metadata"], **metadata}}
    if kind.shape == "job template":
        pod = {"jobTemplate": {"spec": {"template": pod}}}
    else:
        pod = {"template": pod}
    return {**type_meta, "metadata": metadata, "spec": without_empty(pod)}


@many
@given(
    name=st.sampled_from(sorted(KINDS)), spec=pod_specs, policy_manifests=policies(), data=st.data()
)
def test_what_is_ignored_is_all_that_policies_set(name, spec, policy_manifests, data):
    kind = KINDS[name]
    compiled = [read_policy(policy)[0] for policy in policy_manifests]
    conflict = data.draw(st.sampled_from(["and", "skip"]))
    options = AdmissionSettings(on_required_affinity_conflict=conflict)
    before = manifest(kind, spec)
    after, _ = render_manifest(before, Engine(Snapshot(policy_set(compiled)), options))

    for some in (scopes_of(compiled, "ns1"), scopes_of(compiled, apart=False)):
        injected = [scope.injected for scope in some]
        said = [
            expression for fields in injected for expression in jq_expressions(kind.pointer, fields)
        ]
        assert forget(after, said) == forget(before, said)
        said = [pointer for fields in injected for pointer in json_pointers(kind.pointer, fields)]
        assert forget_pointers(after, said) == forget_pointers(before, said)


@many
@given(spec=pod_specs, policy_manifests=policies())
def test_what_git_sets_and_no_policy_does_is_compared(spec, policy_manifests):
    kind = KINDS["Deployment"]
    compiled = [read_policy(policy)[0] for policy in policy_manifests]
    before = manifest(kind, spec)
    said = [
        expression
        for scope in scopes_of(compiled, apart=False)
        for expression in jq_expressions(kind.pointer, scope.injected)
    ]
    changed = manifest(kind, {**spec, "tolerations": [{"key": "only", "operator": "Exists"}]})
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"only": "here"}
    assert forget(before, said) != forget(changed, said)
    spec = forget(changed, said)["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "only", "operator": "Exists"}]
    assert spec["nodeSelector"] == {"only": "here"}
