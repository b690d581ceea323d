from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from helpers.manifests import BASES, objects, of_kind, one

GOLDEN = yaml.safe_load(Path(__file__).with_name("rights.yaml").read_text())
NEVER = {"*", "escalate", "bind", "impersonate", "deletecollection"}
DEFINITION = "CustomResourceDefinition"
READING = {"get", "list", "watch"}


def rights(found, account):
    """Each right of a ServiceAccount as one line: where, what, which, and how."""
    lines = []
    for binding in of_kind(found, "RoleBinding", "ClusterRoleBinding"):
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        role = one(found, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        where = "own namespace" if binding["kind"] == "RoleBinding" else "cluster"
        for rule in role["rules"]:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = f"{resource}.{group}".rstrip(".")
                    names = ", ".join(rule.get("resourceNames", ("any",)))
                    lines.append(f"{where}: {name}: {names}: {', '.join(rule['verbs'])}")
    return sorted(lines)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("account", ["harbourmaster-webhook", "harbourmaster-controller"])
@pytest.mark.claim("R1")
def test_the_rights_are_exactly_these(base, account):
    assert rights(objects(base), account) == sorted(GOLDEN[base][account])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.claim("R3")
def test_the_webhook_only_reads(base):
    verbs = {line.rpartition(": ")[2] for line in rights(objects(base), "harbourmaster-webhook")}
    assert {verb for each in verbs for verb in each.split(", ")} <= READING


@pytest.mark.parametrize("base", BASES)
@pytest.mark.claim("R2")
def test_no_account_of_ours_has_a_dangerous_right(base):
    found = objects(base)
    for account in ("harbourmaster-webhook", "harbourmaster-controller"):
        lines = rights(found, account)
        assert lines, account
        for line in lines:
            where, resource, names, verbs = line.split(": ")
            assert not NEVER & set(verbs.split(", ")), line
            assert "*" not in resource, line
            # No subresource of Kubernetes', so neither pods/exec nor serviceaccounts/token.
            is_part = re.search(r"/(status|finalizers)\.\w+\.keptn\.sh$", resource)
            assert "/" not in resource or is_part, line
            if resource == "secrets" and where == "cluster":
                # One at a time, as a provider names it.
                assert (account, verbs) == ("harbourmaster-controller", "get"), line
            elif resource == "secrets":
                assert names != "any" or verbs == "create", line
            if resource.startswith(("mutatingwebhook", "validatingwebhook", "leases")):
                assert names != "any" or verbs == "create", line


def test_each_process_has_an_account_of_its_own_without_a_token_for_the_asking():
    accounts = of_kind(objects(), "ServiceAccount")
    assert [each["automountServiceAccountToken"] for each in accounts] == [False, False]


def test_people_get_rights_on_policies_through_the_roles_that_they_have():
    found = objects()
    aggregated = {}
    for role in of_kind(found, "ClusterRole"):
        verbs = {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for label, value in role["metadata"]["labels"].items():
            if label.startswith("rbac.authorization.k8s.io/aggregate-to-"):
                assert value == "true"
                aggregated.setdefault(label.rpartition("-")[2], set()).update(verbs)
    assert aggregated.keys() == {"admin", "edit", "view"}
    assert {verb for _, verb in aggregated["view"]} == READING
    assert aggregated["edit"] == aggregated["admin"] > aggregated["view"]
    # These reach into namespaces that an editor of one has no say in.
    for cluster_wide in (
        "clusterpodschedulingpolicies",
        "keptnconfigs",
        "keptnmetricsproviders",
        # These say where the controller sends requests, or reach into every namespace.
        "clusters",
        "metricsproviders",
        "globalclouds",
        "globalmetrics",
        "globalmetricsproviders",
    ):
        verbs = {verb for resource, verb in aggregated["edit"] if resource == cluster_wide}
        assert verbs == READING


def test_people_get_rights_on_every_kind_that_is_defined():
    found = objects()
    defined = {each["spec"]["names"]["plural"] for each in of_kind(found, DEFINITION)}
    viewed = {
        resource
        for role in of_kind(found, "ClusterRole")
        if "rbac.authorization.k8s.io/aggregate-to-view" in role["metadata"]["labels"]
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert viewed == defined
