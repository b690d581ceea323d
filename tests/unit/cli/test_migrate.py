"""Recognition of kupid's and Keptn's objects, and the output of ``harbourmaster migrate``."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import DEPLOYMENTS, MUTATING_WEBHOOKS, NAMESPACES, SECRETS
from harbourmaster.cli import cluster_commands as commands
from harbourmaster.cli.arguments import DEFAULT_NAMESPACE
from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.webhooks import decode_configuration, decode_definition, decode_slice
from harbourmaster.cli.migrate import run as migrate
from harbourmaster.cli.migrate.facts import (
    definition_of,
    judge,
    reach_of,
    registration_of,
    stuck_pod,
)
from harbourmaster.cli.migrate.findings import TEXTS, findings
from harbourmaster.cli.migrate.legacy import role_of, system_of, system_of_webhooks
from harbourmaster.cli.migrate.model import (
    KEPTN,
    KUPID,
    SEVERITIES,
    CalledService,
    Observed,
    Ours,
    Policy,
    Ref,
    Registration,
    Release,
    ReplacedDefinition,
    StuckPod,
)
from harbourmaster.cli.migrate.plan import STEPS, plan
from harbourmaster.cli.migrate.survey import read_observed
from helpers.objects import cluster_policy, policy

ROOT = Path(__file__).parents[3]
OURS = Ours("harbourmaster-system")
SHADOWED = "--webhook-shadow=true"
NAMED = {"name": "x"}


def encode(value):
    return msgspec.Raw(json.dumps(value).encode())


def metadata(name="x", **labels):
    return Metadata(
        name=name, labels={key.replace("__", "/"): text for key, text in labels.items()}
    )


def entry(name, service=("shop", "quota"), policy_="Fail", resources=("pods",)):
    reference = {"namespace": service[0], "name": service[1]}
    return {
        "name": name,
        "clientConfig": {"service": reference},
        "failurePolicy": policy_,
        "rules": [{"apiGroups": [""], "resources": list(resources)}],
    }


@pytest.mark.parametrize(
    ("name", "webhook", "service", "system"),
    [
        ("gardener-extension-kupid", "x", "quota", KUPID),
        ("renamed", "mutate.kupid.gardener.cloud", "quota", KUPID),
        ("renamed", "x", "gardener-extension-kupid", KUPID),
        ("lifecycle-mutating-webhook-configuration", "mpod.keptn.sh", "quota", KEPTN),
        ("renamed", "vanalysis.kb.io", "quota", KEPTN),
        ("renamed", "x", "metrics-webhook-service", KEPTN),
        ("harbourmaster", "pods.harbourmaster.dev", "harbourmaster-webhook", None),
        # Ours on a Gardener seed.
        ("harbourmaster", "pods.harbourmaster.dev", "gardener-extension-kupid", None),
        ("theirs", "vpod.kb.io", "webhook-service", None),
    ],
)
def test_the_system_of_a_webhook_configuration(name, webhook, service, system):
    """Registrations are recognized by their names (kupid-spec 6.6, keptn-spec 2.1)."""
    stored = {"metadata": {"name": name}, "webhooks": [entry(webhook, ("shop", service))]}
    assert system_of_webhooks(decode_configuration(encode(stored))) == system


@pytest.mark.parametrize(
    ("deployment", "role"),
    [
        (metadata("gardener-extension-kupid"), (KUPID, "kupid")),
        (metadata("renamed", app="kupid"), (KUPID, "kupid")),
        (metadata("keptn-scheduler"), (KEPTN, "scheduler")),
        (metadata("scheduler"), None),
        (metadata("scheduler", **{"app.kubernetes.io__part-of": "keptn"}), (KEPTN, "scheduler")),
        (metadata("x", **{"control-plane": "lifecycle-operator"}), (KEPTN, "lifecycle")),
        (metadata("metrics-operator"), None),
        (metadata("x", **{"app.kubernetes.io__part-of": "keptn"}), None),
    ],
)
def test_what_a_deployment_is(deployment, role):
    """Names and labels tell the systems apart (kupid-spec 9, keptn-spec 8)."""
    assert role_of(deployment) == role


def test_a_role_with_a_similar_name_is_not_theirs():
    assert system_of(metadata("team-kupid-policy-editor")) is None
    assert system_of(metadata("keptn-viewers")) is None
    assert system_of(metadata("gardener-extension-kupid-role")) == KUPID


def test_our_objects_with_kupids_labels_are_not_kupids():
    ours = metadata(
        "gardener-extension-kupid", app="kupid", **{"app.kubernetes.io__name": "harbourmaster"}
    )
    assert system_of(ours) is None
    assert role_of(ours) is None


def test_a_registration_fails_closed_by_its_worst_entry():
    stored = {
        "metadata": {"name": "keptn"},
        "webhooks": [
            entry("vkeptnmetric.kb.io", ("keptn", "dead"), resources=["keptnmetrics"]),
            entry("mpod.keptn.sh", ("keptn", "alive"), "Ignore"),
        ],
    }
    answers = {("keptn", "dead"): False, ("keptn", "alive"): True}
    registration = registration_of("Kind", decode_configuration(encode(stored)), KEPTN, answers)
    assert registration == Registration(
        Ref("kind", "keptn"), KEPTN, (CalledService("keptn", "dead", False),), fails_closed=True
    )
    assert registration.is_broken
    # It is not broken if it is unknown whether the Service answers.
    assert not registration_of("Kind", decode_configuration(encode(stored)), KEPTN, {}).is_broken


def test_what_a_definition_says_about_itself():
    """Keptn labels what gets its authority (keptn-spec 7)."""
    service = {"namespace": "keptn-system", "name": "lifecycle-webhook-service"}
    stored = {
        "metadata": {
            "name": "keptnapps.lifecycle.keptn.sh",
            "labels": {"keptn.sh/inject-cert": "true"},
            "annotations": {
                "meta.helm.sh/release-name": "keptn",
                "meta.helm.sh/release-namespace": "keptn-system",
            },
        },
        "spec": {
            "group": "lifecycle.keptn.sh",
            "names": {"plural": "keptnapps", "kind": "KeptnApp"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "storage": True}, {"name": "v1alpha3", "storage": False}],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"service": service}},
            },
        },
        "status": {"storedVersions": ["v1alpha3", "v1"]},
    }
    converter = CalledService("keptn-system", "lifecycle-webhook-service", False)
    definition = definition_of(decode_definition(encode(stored)), 3, converter)
    assert definition == ReplacedDefinition(
        name="keptnapps.lifecycle.keptn.sh",
        system=KEPTN,
        stored_versions=("v1alpha3", "v1"),
        storage_version="v1",
        objects=3,
        conversion=converter,
        is_injected=True,
        release="keptn-system/keptn",
    )
    codes = [finding.code for finding in findings(Observed(OURS, definitions=(definition,)))]
    assert codes == ["conversion-broken", "old-versions"]


@pytest.mark.parametrize(
    ("endpoints", "ready"),
    [
        (None, False),
        ([], False),
        ([{"conditions": {"ready": False}}], False),
        ([{"conditions": {"ready": False}}, {"conditions": {}}], True),
        ([{}], True),
    ],
)
def test_whether_a_service_has_a_ready_endpoint(endpoints, ready):
    assert decode_slice(encode({"endpoints": endpoints})).is_ready == ready


def test_which_pods_wait():
    owner = [{"controller": True}]
    both = {
        "metadata": {"name": "a", "namespace": "shop", "ownerReferences": owner},
        "spec": {
            "schedulerName": "keptn-scheduler",
            "schedulingGates": [NAMED, {"name": "keptn-prechecks-gate"}],
        },
    }
    assert stuck_pod(encode(both)) == StuckPod("shop", "a", 1)
    waiting = {
        "metadata": {"name": "a", "namespace": "shop", "annotations": {"a": "b"}},
        "spec": {"schedulerName": "keptn-scheduler"},
    }
    assert stuck_pod(encode(waiting)) == StuckPod(
        "shop", "a", None, is_annotated=True, is_owned=False
    )
    bare_pod = {
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"schedulingGates": [NAMED]},
    }
    assert stuck_pod(encode(bare_pod)) is None
    going = {**both, "metadata": {**both["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert stuck_pod(encode(going)) is None


REACH = reach_of(
    {
        "kube-system": {"role": "kube-system"},
        "kube-public": {},
        "harbourmaster-system": {"team": "platform"},
        "dns": {"role": "kube-system", "team": "platform"},
        "shop": {"role": "web"},
    },
    "harbourmaster-system",
)


def test_which_namespaces_only_one_of_both_excludes():
    assert REACH == (
        {"kube-public": {}, "harbourmaster-system": {"team": "platform"}},
        {"dns": {"role": "kube-system", "team": "platform"}},
    )


def judge_policy(obj):
    kind = obj["kind"]
    # The items of a list need not say what they are.
    return judge(encode({**obj, "kind": "", "apiVersion": ""}), kind, REACH)


def test_what_becomes_of_a_policy():
    everywhere = judge_policy(cluster_policy("wide", nodeSelector={"a": "b"}))
    assert everywhere == Policy(
        Ref("clusterpodschedulingpolicy", "wide"),
        lost=("harbourmaster-system", "kube-public"),
        gained=("dns",),
    )
    selector = {"matchLabels": {"team": "platform"}}
    narrow = judge_policy(cluster_policy("narrow", namespaceSelector=selector))
    assert (narrow.lost, narrow.gained) == (("harbourmaster-system",), ("dns",))
    assert judge_policy(policy("near", "shop", nodeSelector={"a": "b"})) is None
    assert judge_policy(policy("near", "kube-system", nodeSelector={"a": "b"})) is None
    assert judge_policy(policy("near", "kube-public")).lost == ("kube-public",)
    assert judge_policy(policy("near", "dns")).gained == ("dns",)
    assert judge_policy(policy("near", "dns", podSelector=None)) is None


def test_a_policy_that_is_refused_says_why():
    bad = judge_policy(policy("bad", "shop", nodeName="no name"))
    assert len(bad.faults) == 1
    assert bad.faults[0].startswith("spec.nodeName: ")
    strange = judge_policy(policy("strange", "shop", tolerations="none"))
    assert strange.faults == ("spec.tolerations: expected array, got string",)


def kupid_of(**fields):
    service = CalledService("kupid", "gardener-extension-kupid", True)
    configuration = Ref("mutatingwebhookconfiguration", "gardener-extension-kupid")
    return Observed(
        registrations=(Registration(configuration, KUPID, (service,)),), **{"ours": OURS, **fields}
    )


def test_pods_beyond_the_first_are_counted():
    pods = tuple(StuckPod("shop", f"ledger-{number}", 0) for number in range(20))
    problems = findings(Observed(OURS, pods=pods, gated_pods=5000))
    assert len(problems) == 21
    assert problems[-1].object == "4980 more pods"


def print_findings(problems, steps=(), chosen=()):
    report = migrate.report_of(problems, steps, (), chosen)
    return json.loads(msgspec.json.encode(report))


def test_commands_name_the_same_cluster():
    observed = kupid_of(releases=(Release("kupid", "it's", KUPID),))
    report = print_findings(findings(observed), plan(observed), ("--context", "the shop"))
    commands = [text for step in report["plan"] for text in step["commands"]]
    commands += [finding["command"] for finding in report["findings"] if finding["command"]]
    make = """make deploy 'KUBECTL=kubectl --context '"'"'the shop'"'"''"""
    assert make in commands
    assert all(
        text.startswith("kubectl --context 'the shop' ") for text in commands if text != make
    )
    assert (
        "kubectl --context 'the shop' -n kupid delete secret -l "
        "'owner=helm,name=it'\"'\"'s'" in commands
    )


async def survey(api):
    async with api.client() as client:
        return await read_observed(Installation(client, DEFAULT_NAMESPACE))


async def test_what_may_not_be_read_is_said_and_the_rest_is_found(api):
    api.put(NAMESPACES, {"metadata": {"name": "keptn-system"}})
    broken = entry("mpod.keptn.sh", ("keptn-system", "lifecycle-webhook-service"))
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "lifecycle"}, "webhooks": [broken]})
    api.forbid("list", DEPLOYMENTS)
    api.forbid("list", SECRETS)
    observed = await survey(api)
    assert len(observed.unread) == 3
    assert observed.unread[0] == "missing permission to list deployments.apps"
    assert observed.registrations[0].is_broken
    assert observed.namespaces[0].keeps == ("what could not be listed",)
    assert [step.code for step in plan(observed)] == ["unblock"]


@pytest.mark.parametrize(("flags", "works"), [([], True), ([SHADOWED], False)])
async def test_in_shadow_mode_harbourmaster_does_not_count_as_at_work(api, flags, works):
    metadata = {"namespace": DEFAULT_NAMESPACE}
    for name, given in ((WEBHOOK, ["webhook"]), (CONTROLLER, ["controller", *flags])):
        container = {"name": name, "args": given}
        spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        status = {"readyReplicas": 1, "availableReplicas": 1}
        deployment = {"metadata": {**metadata, "name": name}, "spec": spec, "status": status}
        api.put(DEPLOYMENTS, deployment)
    assert (await survey(api)).ours.is_at_work == works


async def test_it_only_reads(api):
    api.put(NAMESPACES, {"metadata": {"name": "keptn-system"}})
    await survey(api)
    assert {seen.method for seen in api.requests} == {"GET"}


def test_the_manual_lists_every_code_with_its_severity_and_every_step():
    manual = (ROOT / "docs/migration/migrating.md").read_text()
    told = re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", manual, re.MULTILINE)
    assert {word for word in told if word[1] in SEVERITIES} == {
        (code, severity) for severity, texts in TEXTS.items() for code in texts
    }
    listed = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", manual, re.MULTILINE)
    assert [step.code for step in STEPS] == listed[: len(STEPS)]


def test_the_arguments_name_the_function():
    parser = argparse.ArgumentParser()
    commands.add_migrate(parser)
    arguments = parser.parse_args(["--output=json"])
    assert (arguments.command, arguments.output) == ("harbourmaster.cli.migrate.run:run", "json")
