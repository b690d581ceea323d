"""``harbourmaster doctor`` reports unreadable parts as unknown, never as ok."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    KEPTN_CONFIGS,
    KEPTN_METRICS,
    NAMESPACES,
    NODES,
    PODS,
    ROLLOUTS,
    TASKS,
)
from harbourmaster.cli.doctor.checks.permissions import OWN
from harbourmaster.cli.doctor.run import NoPermissionError
from harbourmaster.cli.installed import VALIDATING_POLICY_BINDINGS
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError, UnreachableError
from harbourmaster.lifecycle.keptn_config import ADOPTS
from helpers.broken_installations import ASKED, flags, policy
from helpers.examined import HOME, ExaminedCluster, examine, findings, unreachable

BAD = {"fault", "warning", "unknown"}
BREAK_GLASS = 'harbourmaster doctor --break-glass on --reason "no webhook answers"'


@pytest.fixture
def cluster():
    return ExaminedCluster()


def listing(cluster, resource, error):
    """Lists of a kind end with this error."""
    listed = cluster.list

    async def fails(of, namespace=None, **options):
        if of == resource:
            raise error
        return await listed(of, namespace, **options)

    cluster.list = fails


async def unknown(cluster, check):
    """The findings of a check that are unknown; it has none that is ok."""
    findings = [finding for finding in (await examine(cluster)).findings if finding.check == check]
    assert not [finding for finding in findings if finding.severity == "ok"]
    return [finding for finding in findings if finding.severity == "unknown"]


async def test_a_kind_that_the_cluster_does_not_know_is_one_finding(cluster):
    for resource in (KEPTN_METRICS, TASKS, ROLLOUTS):
        listing(cluster, resource, NotFoundError("404 page not found", status=404))
    report = await examine(cluster)
    (finding,) = [finding for finding in report.findings if finding.severity in BAD]
    assert (finding.check, finding.subject) == ("definitions", "cluster")
    assert finding.text == "does not know the kind KeptnMetric, KeptnTask"
    assert finding.remedy == "kubectl apply --server-side -k deploy/crds"
    # What was not read is not called well.
    assert "metrics" not in {finding.check for finding in report.findings}


async def test_a_missing_definition_is_one_finding_without_its_consequences(cluster):
    listing(cluster, KEPTN_METRICS, NotFoundError("404 page not found", status=404))
    cluster.remove(DEFINITIONS, KEPTN_METRICS.name)
    report = await examine(cluster)
    (finding,) = [finding for finding in report.findings if finding.severity in BAD]
    assert finding.subject == f"definition {KEPTN_METRICS.name}"


@pytest.mark.parametrize(
    "node",
    [
        {"metadata": {"name": "n", "annotations": {"kwok.x-k8s.io/node": "fake"}}},
        {"metadata": {"name": "n"}, "spec": {"providerID": "kind://docker/kind/kind-worker"}},
        {"metadata": {"name": "minikube", "labels": {"minikube.k8s.io/version": "v1"}}},
        {"metadata": {"name": "k3d-dev-server-0"}},
    ],
)
async def test_a_local_cluster_gets_no_note_on_hardening(cluster, node):
    for key in [key for key in cluster.objects if key[0] == VALIDATING_POLICY_BINDINGS]:
        cluster.remove(key[0], key[2])
    cluster.put(NODES, node)
    for name in ("harbourmaster-controller", "harbourmaster-webhook"):
        cluster.remove(DEPLOYMENTS, name, HOME)
    report = await examine(cluster)
    assert [finding for finding in report.findings if finding.severity == "note"] == []
    cluster.put(NODES, {"metadata": {"name": "ip-10-0-0-1"}})
    report = await examine(cluster)
    assert {"hardening"} <= {
        finding.check for finding in report.findings if finding.severity == "note"
    }


async def test_who_may_read_one_namespace_has_that_one_checked(cluster):
    cluster.lacking |= {permission.resource for permission in OWN}
    cluster.forbidden |= {
        "namespaces",
        "mutatingwebhookconfigurations",
        "customresourcedefinitions",
    }
    report = await examine(cluster)
    (told,) = [finding for finding in report.findings if finding.check == "permissions"]
    assert told.subject == "namespace default"
    assert told.text.startswith("checked alone; left out for lack of permissions: installation, ")
    assert "unknown" not in {finding.severity for finding in report.findings}
    cluster.lacking |= {"pods"}
    with pytest.raises(NoPermissionError, match="has doctor check the namespace NAME alone"):
        await examine(cluster)


async def test_a_missing_permission_is_unknown_with_the_command_that_asks_for_it(cluster):
    policy(cluster, "idle", {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}})
    text = (
        "podschedulingpolicies.kupid.gardener.cloud is forbidden: User "
        '"ada" cannot list resource "podschedulingpolicies" in API group "kupid.gardener.cloud"'
    )
    cluster.forbidden.add("podschedulingpolicies")
    cluster._may = forbids(cluster, text)
    (finding,) = await unknown(cluster, "policies")
    assert finding.text == f"missing permission: {text}"
    command = "kubectl auth can-i list podschedulingpolicies.kupid.gardener.cloud -A"
    assert finding.remedy.endswith(f": {command}")


def forbids(cluster, text):
    def may(_, resource):
        if resource.plural in cluster.forbidden:
            raise ForbiddenError(text, status=403, reason="Forbidden")

    return may


async def test_a_forbidden_kind_that_is_not_served_is_not_unknown(cluster):
    cluster.forbidden.add("rollouts")
    assert "rollouts" in (await unknown(cluster, "workloads"))[0].text
    cluster.unserved.add("/apis/argoproj.io/v1alpha1")
    result = [
        finding for finding in (await examine(cluster)).findings if finding.check == "workloads"
    ]
    assert [finding.severity for finding in result] == ["ok"]


async def test_what_was_found_before_an_error_is_kept(cluster):
    config(cluster, "old", "elsewhere")
    space = {"name": "shop", "annotations": ASKED}
    cluster.put(NAMESPACES, {"metadata": space})
    keys = {"name": "bare", "namespace": "shop", "annotations": {"keptn.sh/workload": "cart"}}
    cluster.put(PODS, {"metadata": keys, "spec": {}})
    cluster.forbidden.add("keptnconfigs")
    findings = [
        finding for finding in (await examine(cluster)).findings if finding.check == "checks"
    ]
    assert [finding.severity for finding in findings] == ["warning", "unknown"]


async def test_an_answer_that_does_not_come_is_unknown_and_ends_no_other_check(cluster):
    listing(cluster, CLUSTER_POLICIES, UnreachableError("timed out after 20 s"))
    (result,) = await unknown(cluster, "policies")
    assert result.text == "timed out after 20 s"
    checks = {finding.check: finding.severity for finding in (await examine(cluster)).findings}
    assert checks["certificates"] == "ok"


async def test_without_a_canary_other_webhooks_are_unknown(cluster):
    cluster.forbidden.add("pods")
    (finding,) = await unknown(cluster, "other webhooks")
    assert finding.text == "not tried: the canary got no answer"


# Break-glass


async def canary(cluster):
    (result,) = [
        finding for finding in (await examine(cluster)).findings if finding.check == "canary"
    ]
    return result


async def test_a_canary_that_is_never_answered_names_break_glass(cluster):
    def hang(_):
        raise UnreachableError("no answer from https://cluster within 20 s")

    cluster.admit = hang
    findings = await canary(cluster)
    assert findings.severity == "fault"
    assert "a webhook for pods hangs: no answer from https://cluster" in findings.text
    assert findings.remedy.endswith(BREAK_GLASS)


async def test_a_webhook_that_hangs_names_break_glass(cluster):
    def refuse(_):
        raise unreachable('Post "https://webhook": context deadline exceeded')

    cluster.admit = refuse
    findings = await canary(cluster)
    assert "can't be called: context deadline exceeded" in findings.text
    assert findings.remedy.endswith(BREAK_GLASS)


async def test_webhooks_that_fail_open_and_hang_name_break_glass(cluster):
    def check(*_):
        raise unreachable('Post "https://webhook": context deadline exceeded')

    cluster.admit, cluster.check = (lambda pod: pod), check
    assert (await canary(cluster)).remedy.endswith(BREAK_GLASS)


async def test_a_dead_webhook_of_others_names_no_break_glass(cluster):
    def refuse(_):
        text = 'failed calling webhook "all.example.com": failed to call webhook: EOF'
        raise ApiError(text, status=500)

    cluster.admit = refuse
    assert "break-glass" not in (await canary(cluster)).remedy


# Mistakes of users


async def warned(cluster, check):
    return findings(await examine(cluster), check)


async def test_a_policy_of_excluded_namespaces_says_what_excludes_them(cluster, assert_golden):
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    policy(cluster, "dns", {"podSelector": {}, "namespaceSelector": selector})
    assert_golden(await warned(cluster, "policies"))


def stop(cluster, namespace, key="enabled"):
    name = {"name": "harbourmaster-rescheduling", "namespace": namespace}
    cluster.put(CONFIG_MAPS, {"metadata": name, "data": {key: "false"}})


async def test_a_stop_of_the_rescheduler_in_another_namespace_is_told(cluster, assert_golden):
    flags(cluster, "--rescheduling-enabled=true")
    stop(cluster, "kube-system")
    assert_golden(await warned(cluster, "rescheduling"))
    stop(cluster, HOME)
    assert await warned(cluster, "rescheduling") == []


async def test_a_stop_with_another_key_is_told(cluster, assert_golden):
    flags(cluster, "--rescheduling-enabled=true")
    stop(cluster, HOME, "enable")
    assert_golden(await warned(cluster, "rescheduling"))


def config(cluster, name, namespace, **spec):
    metadata = {"name": name, "namespace": namespace}
    cluster.put(KEPTN_CONFIGS, {"metadata": metadata, "spec": spec})


async def test_keptn_configs_that_do_not_count_are_told(cluster, assert_golden):
    config(cluster, "old", "keptn-lifecycle-toolkit-system", blockDeployment=False)
    config(cluster, "own", HOME, observabilityTimeout="5")
    config(cluster, "second", "keptn-system")
    assert_golden(await warned(cluster, "checks"))


async def test_an_adopted_keptn_config_is_right_as_long_as_it_exists(cluster, assert_golden):
    adopting = {"name": "adopted", "namespace": HOME, "annotations": {ADOPTS: "shop/config"}}
    cluster.put(KEPTN_CONFIGS, {"metadata": adopting, "spec": {}})
    assert_golden(await warned(cluster, "checks"))
    config(cluster, "config", "shop")
    assert await warned(cluster, "checks") == []
