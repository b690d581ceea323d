"""Findings of ``harbourmaster migrate`` about Keptn's settings and objects, and the overlay."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import (
    ANALYSES,
    APP_CONTEXTS,
    APPS,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    KEPTN_CONFIGS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
    MUTATING_WEBHOOKS,
    TASK_DEFINITIONS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.cli.installed import CONTROLLER, DEFAULT_NAMESPACE, WEBHOOK
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate import run as migrate
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.keptn import series_findings
from harbourmaster.cli.migrate.plan import plan
from harbourmaster.cli.migrate.run import overlay
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.lifecycle.keptn_config import ADOPTS

ROOT = Path(__file__).parents[3]
KEPTN = "keptn-system"
BY_CHART = {
    "PROMOTION_TASKS_ENABLED": "false",
    "FUNCTION_RUNNER_IMAGE": "ghcr.io/keptn/deno-runtime:v3.0.1",
}
MIRROR = "registry.example.com/keptn"


def operator(api, role="lifecycle", namespace=KEPTN, **variables):
    """An operator as Keptn's chart deploys it; a pair as value is a key of a ConfigMap."""
    env = [
        {"name": name, "value": value}
        if isinstance(value, str)
        else {
            "name": name,
            "valueFrom": {"configMapKeyRef": {"name": value[0], "key": value[1]}},
        }
        for name, value in variables.items()
    ]
    field = {
        "name": "POD_NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }
    labels = {"control-plane": f"{role}-operator", "app.kubernetes.io/part-of": "keptn"}
    container = {"name": "manager", "image": "keptn/operator", "env": [field, *env]}
    metadata = {"name": f"{role}-operator", "namespace": namespace, "labels": labels}
    spec = {"template": {"spec": {"containers": [container]}}}
    status = {"readyReplicas": 1}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec, "status": status})


def webhook(api, *rules, namespace=KEPTN, policy="Fail"):
    """The webhook for pods, with rules for names of namespaces."""
    expressions = [
        {"key": "kubernetes.io/metadata.name", "operator": operator, "values": list(names)}
        for operator, names in rules
    ]
    control_plane = {"key": "control-plane", "operator": "NotIn", "values": ["lifecycle-operator"]}
    entry = {
        "name": "mpod.keptn.sh",
        "clientConfig": {"service": {"namespace": namespace, "name": "lifecycle-webhook-service"}},
        "failurePolicy": policy,
        "namespaceSelector": {"matchExpressions": [control_plane, *expressions]},
    }
    api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "lifecycle"}, "webhooks": [entry]})


def ours(api, name, *flags, **labels):
    """A Deployment of ours with these flags."""
    command = "controller" if name == CONTROLLER else "webhook"
    container = {"name": command, "image": "harbourmaster", "args": [command, *flags]}
    metadata = {"name": name, "namespace": DEFAULT_NAMESPACE, "labels": labels}
    spec = {"template": {"spec": {"containers": [container]}}}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})


async def survey(api):
    async with api.client() as client:
        observed = await read_observed(Installation(client, DEFAULT_NAMESPACE))
    assert observed.unread == ()
    return observed


async def settings(api):
    return {setting.key: setting.value for setting in (await survey(api)).keptn.settings}


async def findings_of(api, code):
    return [finding for finding in findings(await survey(api)) if finding.code == code]


async def test_a_keptn_with_the_values_of_its_chart_needs_no_setting(api):
    operator(api, **BY_CHART)
    operator(api, "metrics", ENABLE_CUSTOM_METRICS_API_SERVICE="true")
    denied = ("cert-manager", KEPTN, "observability", "monitoring")
    own = (KEPTN, "kube-system", "kube-public", "kube-node-lease")
    webhook(api, ("NotIn", denied), ("NotIn", own))
    observed = await survey(api)
    assert observed.keptn.settings == ()
    assert not observed.keptn.is_overlaid
    assert [step.commands[0].text for step in plan(observed) if step.code == "install"] == [
        "make deploy-beside-keptn"
    ]


async def test_variables_of_the_operators_become_settings(api):
    operator(
        api,
        namespace="keptn",
        PROMOTION_TASKS_ENABLED="True",
        FUNCTION_RUNNER_IMAGE=f"{MIRROR}/deno:1",
        PYTHON_RUNNER_IMAGE=("images", "python"),
    )
    operator(api, "metrics", namespace="keptn", ENABLE_CUSTOM_METRICS_API_SERVICE="0")
    data = {"python": f"{MIRROR}/python:1"}
    api.put(CONFIG_MAPS, {"metadata": {"name": "images", "namespace": "keptn"}, "data": data})
    assert await settings(api) == {
        "lifecycle.promotionTasks": "true",
        "lifecycle.denoImage": f"{MIRROR}/deno:1",
        "lifecycle.pythonImage": f"{MIRROR}/python:1",
        "lifecycle.definitionNamespaces": "keptn",
        "metrics.customMetricsApi": "false",
    }


@pytest.mark.parametrize(
    ("rules", "policy", "expected"),
    [
        (
            [("In", ["shop", "bank", KEPTN]), ("NotIn", [KEPTN])],
            "Fail",
            {"allowedNamespaces": "bank,shop"},
        ),
        (
            [("NotIn", ["shop"]), ("NotIn", ["kube-system"])],
            "Fail",
            {"deniedNamespaces": f"{KEPTN},shop"},
        ),
        ([], "Fail", {"deniedNamespaces": KEPTN}),
        (
            [("NotIn", ["monitoring", "cert-manager", "observability"])],
            "Ignore",
            {"webhook.gatedFailurePolicy": "Ignore"},
        ),
    ],
    ids=["allowed", "denied", "none", "fails-open"],
)
async def test_the_webhook_says_which_namespaces_have_gates(api, rules, policy, expected):
    webhook(api, *rules, policy=policy)
    assert await settings(api) == expected


async def test_a_setting_is_reported_until_we_run_with_it(api):
    operator(api, PROMOTION_TASKS_ENABLED="true")
    webhook(api, ("In", ["shop"]))
    reported = await findings_of(api, "setting")
    assert [finding.object for finding in reported] == [
        "setting lifecycle.promotionTasks",
        "setting allowedNamespaces",
    ]
    assert "set --lifecycle-promotion-tasks=true" in reported[0].why
    assert "PROMOTION_TASKS_ENABLED of deployment lifecycle-operator" in reported[0].why
    ours(api, CONTROLLER, "--lifecycle-promotion-tasks=true")
    assert [finding.object for finding in await findings_of(api, "setting")] == [
        "setting allowedNamespaces"
    ]
    ours(api, WEBHOOK, "--allowed-namespaces=shop")
    assert await findings_of(api, "setting") == []


async def test_the_plan_saves_the_overlay_and_installs_it(api):
    operator(api, PROMOTION_TASKS_ENABLED="true")
    api.put(KEPTN_CONFIGS, config("shop"))
    steps = {
        step.code: [command.text for command in step.commands] for step in plan(await survey(api))
    }
    assert steps["install"][:3] == [
        "mkdir -p deploy/migrated",
        "harbourmaster migrate --output=yaml > deploy/migrated/kustomization.yaml",
        "make deploy-beside-keptn OVERLAY=deploy/migrated",
    ]
    # Only an administrator decides who configures the whole cluster.
    assert not any("adopt" in line for lines in steps.values() for line in lines)
    assert steps["take-over"][:2] == [
        "sed -i.bak s,/beside-keptn,/default, deploy/migrated/kustomization.yaml",
        "make deploy OVERLAY=deploy/migrated",
    ]


async def test_a_plan_that_is_asked_for_again_keeps_the_overlay(api):
    flags = ("--lifecycle-promotion-tasks=true", "--controllers=registration")
    (labels,) = [label["pairs"] for label in overlay(await survey(api))["labels"]]
    ours(api, WEBHOOK)
    for more, command in ((labels, "make deploy OVERLAY=deploy/migrated"), ({}, "make deploy")):
        ours(api, CONTROLLER, *flags, **more)
        (step,) = [step for step in plan(await survey(api)) if step.code == "take-over"]
        assert [command.text for command in step.commands if command.arguments[0] == "make"] == [
            command
        ]
        # Settings by Helm or another overlay are in no file that is known.
        assert any(command.arguments[0] == "sed" for command in step.commands) == bool(more)


async def test_a_file_that_is_written_again_is_announced(api):
    operator(api, PROMOTION_TASKS_ENABLED="true")
    for label, is_told in (("migrated", True), ("own", False)):
        ours(api, CONTROLLER, **{"harbourmaster.dev/overlay": label})
        (step,) = [step for step in plan(await survey(api)) if step.code == "install"]
        assert ("save what you have added" in step.why) == is_told


async def test_shadow_mode_is_ended_before_the_installation(api):
    operator(api)
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        api.put(kind, {"metadata": {"name": "000-harbourmaster-shadow"}, "webhooks": []})
    ours(api, CONTROLLER, "--webhook-shadow=true", "--controllers=registration")
    observed = await survey(api)
    (step,) = [step for step in plan(observed) if step.code == "install"]
    assert [command.text for command in step.commands[:2]] == [
        "kubectl delete -k deploy/shadow",
        "make deploy-beside-keptn",
    ]
    assert await findings_of(api, "shadow-left") == []
    ours(api, CONTROLLER)
    assert [finding.command.text for finding in await findings_of(api, "shadow-left")] == [
        f"kubectl delete {kind}webhookconfiguration 000-harbourmaster-shadow --ignore-not-found"
        for kind in ("mutating", "validating")
    ]
    (step,) = [step for step in plan(await survey(api)) if step.code == "install"]
    assert step.commands[0].text == "make deploy-beside-keptn"


async def test_shadow_mode_without_kupid_and_keptn_is_not_turned_into_an_installation(api):
    ours(api, CONTROLLER, "--webhook-shadow=true", "--controllers=registration")
    assert plan(await survey(api)) == ()


async def test_the_overlay_has_the_settings_of_both_processes(api):
    operator(api, FUNCTION_RUNNER_IMAGE='say "hello": #1')
    operator(api, "metrics", ENABLE_CUSTOM_METRICS_API_SERVICE="false")
    webhook(api, ("In", ["shop", "bank"]))
    written = overlay(await survey(api))
    assert written["resources"] == ["../beside-keptn"]
    assert written["components"] == ["../components/no-custom-metrics"]
    flags = {
        (patch["target"]["name"], operation["value"])
        for patch in written["patches"]
        for operation in yaml.safe_load(patch["patch"])
    }
    assert flags == {
        (CONTROLLER, '--lifecycle-deno-image=say "hello": #1'),
        (WEBHOOK, "--allowed-namespaces=bank,shop"),
    }


async def test_yaml_is_an_overlay_that_names_no_finding(api, capsysbinary):
    operator(api, PROMOTION_TASKS_ENABLED="true")
    arguments = argparse.Namespace(installed_in=DEFAULT_NAMESPACE, output="yaml")
    async with api.client() as client:
        assert await migrate._run(arguments, client) == 0
    written = yaml.safe_load(capsysbinary.readouterr().out)
    assert written["kind"] == "Kustomization"
    assert "--lifecycle-promotion-tasks=true" in written["patches"][0]["patch"]


def test_commands_of_ours_name_the_same_cluster():
    observed = migrate.Command(("harbourmaster", "migrate", "--output=yaml"), "file")
    chosen = ("--context", "blue")
    assert (
        migrate._text(observed, chosen)
        == "harbourmaster migrate --output=yaml --context blue > file"
    )
    assert migrate._text(migrate.Command(("mkdir", "-p", "x")), chosen) == "mkdir -p x"


def config(namespace, name="config", **annotations):
    return {"metadata": {"name": name, "namespace": namespace, "annotations": annotations}}


async def test_a_config_elsewhere_waits_for_its_adoption(api):
    operator(api)
    api.put(KEPTN_CONFIGS, config("shop"))
    (finding,) = await findings_of(api, "config-elsewhere")
    assert finding.object == "keptnconfig config in namespace shop"
    assert "only a KeptnConfig in harbourmaster-system and keptn-system counts" in finding.why
    assert finding.why.endswith("each user that can write shop/config configures the whole cluster")
    assert finding.command.text == "harbourmaster config adopt shop/config"
    api.put(KEPTN_CONFIGS, config(DEFAULT_NAMESPACE, "adopted", **{ADOPTS: "shop/config"}))
    assert await findings_of(api, "config-elsewhere") == []


async def test_a_config_beside_one_that_counts_is_only_named(api):
    operator(api)
    api.put(KEPTN_CONFIGS, config("shop"))
    api.put(KEPTN_CONFIGS, config(KEPTN))
    (finding,) = await findings_of(api, "config-elsewhere")
    assert finding.why.endswith(": keptn-system/config comes first")
    assert finding.command is None


async def test_a_config_where_keptn_runs_counts(api):
    operator(api, namespace="keptn")
    api.put(KEPTN_CONFIGS, config("keptn"))
    assert await findings_of(api, "config-elsewhere") == []


async def test_an_adoption_by_a_config_that_is_not_first_is_no_adoption(api):
    operator(api)
    api.put(KEPTN_CONFIGS, config("shop"))
    api.put(KEPTN_CONFIGS, config(KEPTN))
    api.put(KEPTN_CONFIGS, config(DEFAULT_NAMESPACE, "own"))
    api.put(KEPTN_CONFIGS, config(DEFAULT_NAMESPACE, "second", **{ADOPTS: "shop/config"}))
    (finding,) = await findings_of(api, "config-elsewhere")
    assert finding.why.endswith(f": {DEFAULT_NAMESPACE}/own comes first")
    assert finding.command is None


async def test_stored_objects_that_our_webhook_refuses_are_named_with_the_field(api):
    operator(api)
    where = {"namespace": "shop"}
    metric = {"provider": {"name": "prom"}, "query": "up", "fetchIntervalSeconds": 5}
    api.put(KEPTN_METRICS, {"metadata": {"name": "good", **where}, "spec": metric})
    negative = {**metric, "fetchIntervalSeconds": -1}
    api.put(KEPTN_METRICS, {"metadata": {"name": "bad", **where}, "spec": negative})
    told = {"type": "prometheus", "targetServer": "http://a:b@example.com"}
    api.put(METRICS_PROVIDERS, {"metadata": {"name": "odd", **where}, "spec": told})
    recent = {"timeframe": {"recent": "5m", "from": "2026-01-01T00:00:00Z"}}
    api.put(ANALYSES, {"metadata": {"name": "both", **where}, "spec": recent})
    refused = {finding.object: finding for finding in await findings_of(api, "object-refused")}
    assert set(refused) == {
        "keptnmetric bad in namespace shop",
        "keptnmetricsprovider odd in namespace shop",
        "analysis both in namespace shop",
    }
    bad = refused["keptnmetric bad in namespace shop"]
    assert "spec.fetchIntervalSeconds" in bad.why
    assert bad.command.text == "kubectl -n shop edit keptnmetric bad"


async def test_without_keptn_nothing_of_a_tenant_is_a_finding(api):
    api.put(KEPTN_CONFIGS, config("shop"))
    spec = {"provider": {"name": "prom"}, "query": "up", "fetchIntervalSeconds": -1}
    api.put(KEPTN_METRICS, {"metadata": {"name": "bad", "namespace": "shop"}, "spec": spec})
    assert findings(await survey(api)) == ()


async def test_objects_stored_in_an_older_version_are_not_judged_as_ours(api):
    operator(api)
    spec = {
        "group": TASK_DEFINITIONS.group,
        "names": {"plural": TASK_DEFINITIONS.plural, "kind": TASK_DEFINITIONS.kind},
        "scope": "Namespaced",
        "versions": [{"name": "v1alpha3", "storage": True}],
    }
    api.put(DEFINITIONS, {"metadata": {"name": TASK_DEFINITIONS.name}, "spec": spec})
    old = replace(TASK_DEFINITIONS, version="v1alpha3")
    function = {"function": {"inline": {"code": "1"}}}
    api.define(old)
    api.put(old, {"metadata": {"name": "plain", "namespace": "shop"}, "spec": function})
    assert len(await findings_of(api, "task-token")) == 1
    assert await findings_of(api, "object-refused") == []


async def test_tasks_that_had_a_token_unasked_are_named_while_keptn_is_there(api):
    function = {"deno": {"inline": {"code": "1"}}}
    account = {"serviceAccount": {"name": "checks"}}
    asked = {"automountServiceAccountToken": {"type": False}}
    for name, more in (("plain", {}), ("own", account), ("asked", asked)):
        metadata = {"name": name, "namespace": "shop"}
        api.put(TASK_DEFINITIONS, {"metadata": metadata, "spec": {**function, **more}})
    assert await findings_of(api, "task-token") == []
    operator(api)
    (finding,) = await findings_of(api, "task-token")
    assert finding.object == "keptntaskdefinition plain in namespace shop"
    (step,) = [step for step in plan(await survey(api)) if step.code == "mend"]
    assert finding.command in step.commands
    assert "automountServiceAccountToken" in finding.command.text
    assert [finding.object for finding in await findings_of(api, "runner-context")] == ["functions"]


async def test_lists_of_apps_that_a_context_hides_are_named(api):
    operator(api)
    where = {"namespace": "shop"}
    for name, lists in (
        ("both", {"preDeploymentTasks": ["scan", "warm"], "postDeploymentEvaluations": ["load"]}),
        ("lists", {"preDeploymentTasks": ["scan"]}),
        ("context", {}),
    ):
        metadata = {"name": name, **where}
        api.put(APPS, {"metadata": metadata, "spec": {"version": "1", **lists}})
        if name != "lists":
            api.put(APP_CONTEXTS, {"metadata": metadata, "spec": {}})
    api.put(APP_CONTEXTS, {"metadata": {"name": "lists", "namespace": "bank"}, "spec": {}})
    (finding,) = await findings_of(api, "checks-ignored")
    assert finding.object == "keptnapp both in namespace shop"
    assert finding.why == (
        "the KeptnAppContext of its name counts instead of spec.preDeploymentTasks: scan, warm; "
        "spec.postDeploymentEvaluations: load: move them"
    )


async def test_an_object_that_cannot_be_read_keeps_no_step_back(api):
    operator(api)
    api.put(TASK_DEFINITIONS, {"metadata": {"name": "odd", "namespace": "shop"}, "spec": "none"})
    assert "take-over" in [step.code for step in plan(await survey(api))]


@pytest.mark.parametrize(
    ("names", "whys"),
    [
        (["shop/load"], []),
        (["shop/load-1.a"], []),
        (["shop/a--b"], ["its gauge a_b becomes a__b"]),
        (["shop/load", "bank/load"], ["several metrics have the gauge load"] * 2),
        (["shop/a-b", "shop/a.b"], ["several metrics have the gauge a_b"] * 2),
    ],
)
def test_gauges_that_get_another_name_or_labels(names, whys):
    metrics = [
        Metadata(namespace=name.partition("/")[0], name=name.partition("/")[2]) for name in names
    ]
    judged = [finding.parts["why"].partition(": each")[0] for finding in series_findings(metrics)]
    assert judged == whys


@pytest.mark.parametrize(("exposed", "reported"), [("true", 1), ("false", 0)])
async def test_an_address_without_values_is_no_change(api, exposed, reported):
    operator(api, "metrics", EXPOSE_KEPTN_METRICS=exposed)
    assert len(await findings_of(api, "metrics-address")) == reported


async def test_series_of_the_operator_that_change_are_named(api):
    assert await findings_of(api, "series-change") == []
    operator(api)
    subjects = [finding.object for finding in await findings_of(api, "series-change")]
    assert subjects == [
        "Service lifecycle-operator-metrics-service",
        "series keptn_task_* and keptn_evaluation_*",
    ]


def test_the_manual_says_what_becomes_of_every_value_of_keptns_charts(assert_golden):
    manual = (ROOT / "docs/migration/keptn.md").read_text()
    _, _, rest = manual.partition("| value | charts | here |")
    told = {}
    for row in rest.partition("\n\n")[0].splitlines()[2:]:
        names, charts, here = row.strip("| ").split(" | ")
        assert here
        for name in re.findall(r"`([^`]+)`", names):
            assert name not in told
            told[name] = tuple(charts.split(", "))
    # The values of Keptn's charts of version 2.5.0, and which charts have them.
    assert_golden(dict(sorted(told.items())))


async def test_the_manual_marks_what_migrate_sets(api):
    operator(
        api,
        namespace="keptn",
        PROMOTION_TASKS_ENABLED="true",
        FUNCTION_RUNNER_IMAGE="a",
        PYTHON_RUNNER_IMAGE="b",
        ENABLE_CUSTOM_METRICS_API_SERVICE="false",
    )
    webhook(api, ("In", ["shop"]), policy="Ignore")
    keys = set(await settings(api))
    webhook(api)
    keys |= set(await settings(api))
    manual = (ROOT / "docs/migration/keptn.md").read_text()
    assert set(re.findall(r"\*\*set\*\*: `([^`]+)`", manual)) == keys
