from __future__ import annotations

import io
import re
import subprocess
import tarfile
from itertools import product
from pathlib import Path

import pytest
import yaml

from harbourmaster.controller.settings import ControllerSettings
from helpers import releases
from helpers.manifests import BASES, DEPLOY, ROOT, controller_settings, objects, of_kind, one

GOLDEN = yaml.safe_load(Path(__file__).with_name("rights.yaml").read_text())
NEVER = {"*", "escalate", "bind", "impersonate", "deletecollection"}
DEFINITION = "CustomResourceDefinition"
READING = {"get", "list", "watch"}
SHADOW = "shadow"


def rights(manifests, account):
    """Each right of a ServiceAccount as one line: where, what, which, and how."""
    lines = []
    for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding"):
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        role = one(manifests, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        where = "own namespace" if binding["kind"] == "RoleBinding" else "cluster"
        for rule in role["rules"]:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = f"{resource}.{group}".rstrip(".")
                    names = ", ".join(rule.get("resourceNames", ("any",)))
                    lines.append(f"{where}: {name}: {names}: {', '.join(rule['verbs'])}")
    return sorted(lines)


@pytest.mark.parametrize(
    ("base", "account"),
    [(base, account) for base in (*BASES, SHADOW, "rescheduler-alone") for account in GOLDEN[base]],
)
@pytest.mark.claim("R1")
def test_the_rights_are_exactly_these(base, account):
    assert rights(objects(base), account) == sorted(GOLDEN[base][account])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("component", GOLDEN["components"])
def test_only_a_component_brings_its_setting_and_its_rights(base, component):
    without, manifests = objects(base), objects(base, component)
    account = "harbourmaster-controller"
    brought = set(rights(manifests, account)) - set(rights(without, account))
    assert sorted(brought) == sorted(GOLDEN["components"][component])
    settings = [ControllerSettings(), controller_settings(without), controller_settings(manifests)]
    assert [getattr(of, component).enabled for of in settings] == [False, False, True]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.claim("R3")
def test_the_webhook_only_reads(base):
    verbs = {line.rpartition(": ")[2] for line in rights(objects(base), "harbourmaster-webhook")}
    assert {verb for verb_list in verbs for verb in verb_list.split(", ")} <= READING


@pytest.mark.parametrize("base", [*BASES, SHADOW])
@pytest.mark.claim("R2")
def test_no_account_of_ours_has_a_dangerous_right(base):
    manifests = objects(base)
    for account in ("harbourmaster-webhook", "harbourmaster-controller"):
        lines = rights(manifests, account)
        assert lines, account
        for line in lines:
            where, resource, names, verbs = line.split(": ")
            assert not NEVER & set(verbs.split(", ")), line
            assert "*" not in resource, line
            # No subresource of Kubernetes', so neither pods/exec nor serviceaccounts/token.
            is_part = re.search(
                r"/(status|finalizers)\.(\w+\.keptn\.sh|kupid\.gardener\.cloud)$", resource
            )
            assert "/" not in resource or is_part, line
            if resource == "secrets" and where == "cluster":
                # One at a time, as a provider names it.
                assert (account, verbs) == ("harbourmaster-controller", "get"), line
            elif resource == "secrets":
                assert names != "any" or verbs == "create", line
            if "admissionpolic" in resource:
                # Whoever writes these can change any object.
                assert set(verbs.split(", ")) <= READING, line
            if resource.startswith(("mutatingwebhook", "validatingwebhook", "leases")):
                assert names != "any" or verbs == "create", line


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The manifests of the release before."""
    archive = subprocess.run(
        ["git", "archive", releases.COMMIT, "deploy"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("the commit of the release before is not in this clone")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as content:
        content.extractall(folder, filter="data")
    return folder / "deploy"


def permissions_in(folder):
    """Whom each binding of a folder's manifests binds to what, and all that each role allows."""
    pairs = set()
    for path in folder.rglob("*.yaml"):
        text = path.read_text()
        if "rbac.authorization.k8s.io" not in text or "{{" in text:
            continue
        for item in yaml.safe_load_all(text):
            name = (item["kind"], item["metadata"]["name"])
            if item["kind"].endswith("Binding"):
                pairs |= {
                    (*name, item["roleRef"]["name"], subject["name"])
                    for subject in item["subjects"]
                }
            for rule in item.get("rules", ()):
                pairs |= {
                    (*name, *right)
                    for right in product(
                        rule["apiGroups"],
                        rule["resources"],
                        rule.get("resourceNames", ("any",)),
                        rule["verbs"],
                    )
                }
    return pairs


def test_the_release_before_has_its_rights_after_a_rollout_undo(before):
    old, new = permissions_in(before), permissions_in(DEPLOY)
    assert len(old) > 200
    assert old - new == set()


def test_rights_for_the_release_before_are_of_that_release_and_no_older_one(before):
    assert releases.KEPT.keys() <= {releases.VERSION}, "remove the rights of an older release"
    old = {(verb, group, resource) for *_, group, resource, _, verb in permissions_in(before)}
    assert releases.KEPT.get(releases.VERSION, set()) <= old


def test_each_process_has_an_account_of_its_own_without_a_token_for_the_asking():
    accounts = of_kind(objects(), "ServiceAccount")
    assert [account["automountServiceAccountToken"] for account in accounts] == [False, False]


def test_people_get_rights_on_policies_through_the_roles_that_they_have():
    manifests = objects()
    aggregated = {}
    for role in of_kind(manifests, "ClusterRole"):
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
    manifests = objects()
    defined = {
        definition["spec"]["names"]["plural"] for definition in of_kind(manifests, DEFINITION)
    }
    viewed = {
        resource
        for role in of_kind(manifests, "ClusterRole")
        if "rbac.authorization.k8s.io/aggregate-to-view" in role["metadata"]["labels"]
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert viewed == defined
