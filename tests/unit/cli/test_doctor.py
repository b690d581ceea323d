"""``harbourmaster doctor``: healthy installations, unreadable parts, and the output."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta

import msgspec
import pytest

from harbourmaster.api.resources import (
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.certs.authority import create_authority
from harbourmaster.cli.diagnosis import Finding, sort_findings
from harbourmaster.cli.doctor import run as doctor
from harbourmaster.cli.doctor.checks import CHECKS, permissions
from harbourmaster.cli.doctor.checks.features import add_on
from harbourmaster.cli.doctor.checks.permissions import required_permissions
from harbourmaster.cli.doctor.run import DoctorReport, NoPermissionError, diagnose, lines, summary
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.findings import findings as judge
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError, UnreachableError
from harbourmaster.rescheduling.model import Criteria
from harbourmaster.webhook.probe_pod import our_version
from helpers.broken_installations import GATED, POD, addon, flags, leaf, settings_file
from helpers.examined import (
    CONTROLLER,
    HOME,
    NAME,
    SECRET_NAME,
    WEBHOOK,
    ExaminedCluster,
    examine,
    findings,
    problems,
)


@pytest.fixture
def cluster():
    return ExaminedCluster()


async def test_a_sound_installation_is_healthy(cluster):
    report = await examine(cluster)
    assert problems(report) == []
    assert (report.healthy, report.summary) == (True, "Harbourmaster is healthy.")
    assert [check.name for check in CHECKS] == list(dict.fromkeys(check.name for check in CHECKS))
    assert {finding.check for finding in report.findings} == {check.name for check in CHECKS}
    (said,) = [finding.text for finding in report.findings if finding.check == "canary"]
    assert said == f"a pod tried in default was answered by version {our_version()}"


async def test_settings_of_a_config_map_count(cluster):
    settings_file(cluster, "webhook: {failurePolicy: Fail}\n")
    (first, *_) = problems(await examine(cluster), "fault")
    assert first == (
        "configurations",
        "fault",
        "failurePolicy of templates.harbourmaster.dev (mutating): is Ignore, Fail expected",
    )
    for name in ("templates.harbourmaster.dev", POD):
        cluster.entry(name)["failurePolicy"] = "Fail"
    for entry in cluster.at(VALIDATING_WEBHOOKS, NAME)["webhooks"]:
        entry["failurePolicy"] = "Fail"
    assert problems(await examine(cluster)) == []


async def test_without_deployments_a_setting_may_be_anything(cluster, assert_golden):
    for name in (CONTROLLER, WEBHOOK):
        cluster.remove(DEPLOYMENTS, name, HOME)
    cluster.entry(POD)["timeoutSeconds"] = 11
    # The address of a process outside of the cluster is not a default.
    cluster.entry(POD)["clientConfig"]["service"]["port"] = 8443
    cluster.entry(POD)["sideEffects"] = "Some"
    report = await examine(cluster)
    assert_golden([*findings(report, "configurations"), *findings(report, "installation")])


@pytest.mark.parametrize(
    "flag", ["--register-webhooks=false", "--controllers=namespaces,lifecycle"]
)
async def test_where_others_keep_the_registration_its_remedies_are_theirs(
    cluster, assert_golden, flag
):
    flags(cluster, flag)
    cluster.entry(POD)["failurePolicy"] = "Fail"
    cluster.entry(POD)["clientConfig"].pop("caBundle")
    report = await examine(cluster)
    # Not the bare manifests: an apply of them takes away what cert-manager injects by.
    assert_golden([*findings(report, "configurations"), *findings(report, "certificates")])


async def test_a_certificate_that_should_have_been_renewed_is_reported(cluster):
    # It has a sixth of its life left; the authority is older than it.
    old = cluster.now - timedelta(days=6)
    cluster.__init__()
    authority = create_authority(old)
    cluster.authority = authority
    leaf(cluster, old, names_of(cluster.settings, HOME), authority)
    bundle = base64.b64encode(authority.certificate).decode()
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for entry in cluster.at(resource, NAME)["webhooks"]:
            entry["clientConfig"]["caBundle"] = bundle
    cluster.at(SECRETS, SECRET_NAME, HOME)["data"]["ca.crt"] = authority.certificate
    for name in ("keptnapps.lifecycle.keptn.sh", "keptnappversions.lifecycle.keptn.sh"):
        spec = cluster.at(DEFINITIONS, name)["spec"]
        spec["conversion"]["webhook"]["clientConfig"]["caBundle"] = bundle
    ((check, severity, text),) = problems(await examine(cluster))
    assert (check, severity) == ("certificates", "warning")
    assert "tls.crt expires in 2" in text
    assert text.endswith("h and should have been renewed")


async def test_a_secret_that_may_not_be_read_hides_no_expired_bundle(cluster, assert_golden):
    cluster.forbidden.add("secrets")
    cluster.entry(GATED)["clientConfig"]["caBundle"] = ""
    assert_golden(findings(await examine(cluster), "certificates"))


async def test_the_canary_goes_where_webhooks_look(cluster):
    cluster.entry(POD)["namespaceSelector"] = {
        "matchLabels": {"kubernetes.io/metadata.name": "shop"}
    }
    cluster.entry(POD)["objectSelector"] = {"matchLabels": {"team": "a"}}
    tried = []
    answered = cluster.answer_pod

    def admit(pod):
        tried.append(pod["metadata"])
        return answered(pod)

    cluster.admit = admit
    await examine(cluster)
    assert {request["namespace"] for request in tried} == {"shop"}
    assert tried[0]["labels"]["team"] == "a"


async def test_a_canary_namespace_can_be_named(cluster):
    report = await examine(cluster, canary_namespace="shop")
    (said,) = [finding.text for finding in report.findings if finding.check == "canary"]
    assert said.startswith("a pod tried in shop was answered")
    (line,) = problems(await examine(cluster, canary_namespace="nowhere"))
    assert line[:2] == ("canary", "unknown")


async def test_nothing_is_stored_and_only_what_is_harmless_is_tried(cluster):
    await examine(cluster)
    # ExaminedCluster.create takes dry runs alone.
    assert cluster.created == ["Pod", "Pod"]


async def test_one_check_that_breaks_keeps_no_other_from_it(cluster):
    cluster.at(NAMESPACES, "shop")["metadata"]["labels"] = "none"
    cluster.entry(POD)["failurePolicy"] = "Fail"
    report = await examine(cluster)
    assert ("configurations", "fault") in {line[:2] for line in problems(report)}
    assert any(line[1] == "unknown" and "could not be read" in line[2] for line in problems(report))
    assert {finding.check for finding in report.findings} == {check.name for check in CHECKS}


async def test_an_object_that_cannot_be_read_is_named_once(cluster, capsys, assert_golden):
    cluster.at(NAMESPACES, "shop")["metadata"]["labels"] = "none"
    assert_golden(problems(await examine(cluster), "unknown"))
    assert capsys.readouterr().err == ""


async def test_missing_permissions_are_reported_by_check_and_the_rest_is_checked(
    cluster, assert_golden
):
    cluster.forbidden.update({"namespaces", "customresourcedefinitions"})
    cluster.entry(POD)["failurePolicy"] = "Fail"
    assert_golden(problems(await examine(cluster)))


async def test_a_caller_without_any_permission_gets_one_line(cluster):
    cluster.lacking.add("*")
    cluster.forbidden.add("*")
    with pytest.raises(NoPermissionError) as told_so:
        await examine(cluster)
    line = str(told_so.value)
    assert line.startswith("ada has no permission to read")
    assert "ask for the permissions to get mutatingwebhookconfigurations" in line
    assert "\n" not in line


async def test_what_ours_does_outside_of_the_cluster_is_no_leftover(cluster):
    for name in (CONTROLLER, WEBHOOK):
        cluster.remove(DEPLOYMENTS, name, HOME)
    spec = {"schedulingGates": [{"name": "keptn-prechecks-gate"}], "containers": []}
    cluster.put(PODS, {"metadata": {"name": "waits", "namespace": "shop"}, "spec": spec})
    ask = cluster.request

    async def request(method, path, **options):
        if "clusterpodschedulingpolicies" in path:
            return msgspec.json.encode({"metadata": {}, "items": [{}]})
        return await ask(method, path, **options)

    cluster.request = request
    observed = await read_observed(Installation(cluster, HOME))
    assert {fault.code for fault in judge(observed)} == {"policies-idle"}
    assert problems(await examine(cluster)) == []


async def test_without_a_configuration_checks_that_need_it_are_not_ok(cluster):
    cluster.remove(MUTATING_WEBHOOKS, NAME)
    report = await examine(cluster)
    severities = {finding.check: finding.severity for finding in report.findings}
    assert severities["configurations"] == "fault"
    assert severities["canary"] == severities["selectors"] == "note"


async def test_with_all_of_it_gone_but_a_lease_the_remedy_says_so(cluster):
    for name in (CONTROLLER, WEBHOOK):
        cluster.remove(DEPLOYMENTS, name, HOME)
    cluster.age(3600)
    report = await examine(cluster)
    (finding,) = [finding for finding in report.findings if finding.subject.startswith("Lease")]
    assert "Deployment harbourmaster-controller not found" in finding.remedy


@pytest.mark.parametrize("broken", ["get", "create"])
async def test_an_api_server_that_fails_is_reported_by_the_checks(cluster, broken):
    async def fails(*_, **__):
        raise ApiError("etcd is slow", status=500)

    setattr(cluster, broken, fails)
    report = await examine(cluster)
    assert any("etcd is slow" in text for _, severity, text in problems(report, "unknown"))
    assert not report.healthy


async def test_without_manifests_rights_are_not_seen(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(permissions, "DEPLOY", tmp_path)
    assert ("rights", "unknown") in {line[:2] for line in problems(await examine(cluster))}


async def test_a_dead_webhook_of_others_is_not_taken_for_ours(cluster, assert_golden):
    def check(*_):
        text = 'failed calling webhook "all.example.com": failed to call webhook: EOF'
        raise ApiError(text, status=500)

    cluster.admit, cluster.check = (lambda pod: pod), check
    assert_golden(findings(await examine(cluster), "canary"))


async def test_where_nothing_of_ours_is_one_finding_says_so(cluster):
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        cluster.remove(resource, NAME)
    for name in (CONTROLLER, WEBHOOK):
        cluster.remove(DEPLOYMENTS, name, HOME)
    cluster.remove(LEASES, CONTROLLER, HOME)
    elsewhere = {"name": "controller", "namespace": "elsewhere"}
    cluster.put(DEPLOYMENTS, {"metadata": elsewhere})
    report = await examine(cluster)
    (finding,) = report.findings
    assert finding.text == f"is not installed in namespace {HOME}, but in elsewhere"
    assert finding.remedy == "set --installed-in elsewhere"
    assert report.summary == "Harbourmaster is not healthy: 1 fault."


async def test_configurations_tell_where_it_is(cluster):
    report = await diagnose(cluster, "elsewhere")
    (finding,) = report.findings
    assert finding.text == f"is not installed in namespace elsewhere, but in {HOME}"
    assert finding.remedy == f"set --installed-in {HOME}"


async def test_an_api_server_that_goes_away_ends_it(cluster):
    async def get(*_, **__):
        raise UnreachableError("gone")

    cluster.get = get
    with pytest.raises(UnreachableError):
        await examine(cluster)
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert others == []


# Pieces


def test_rights_are_those_of_the_manifests():
    result = required_permissions(ControllerSettings(), "elsewhere")
    said = {(missing.account, str(missing), missing.namespace) for missing in result}
    assert (CONTROLLER, "patch pods", "") in said
    assert (WEBHOOK, "watch namespaces", "") in said
    assert (
        CONTROLLER,
        "update leases.coordination.k8s.io harbourmaster-controller",
        "elsewhere",
    ) in said
    assert (CONTROLLER, "patch keptnmetrics/status.metrics.keptn.sh", "") in said
    assert not any("evictions" in text or "eviction" in text for _, text, _ in said)


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({"rescheduling": {"enabled": True}}, "create pods/eviction"),
        ({"placement": {"enabled": True}}, "patch applications.placement.harbourmaster.dev"),
        ({"dashboard": {"enabled": True}}, "create tokenreviews.authentication.k8s.io"),
    ],
)
def test_rights_follow_the_settings(settings, right):
    without = set(map(str, required_permissions(ControllerSettings(), HOME)))
    changed = msgspec.convert(settings, ControllerSettings)
    rights = set(map(str, required_permissions(changed, HOME)))
    assert without < rights
    assert any(name.startswith(right.split("/")[0]) for name in rights - without)


def test_rights_of_the_registration_are_asked_for_where_it_is_ours():
    ours = set(map(str, required_permissions(ControllerSettings(), HOME)))
    theirs = set(map(str, required_permissions(ControllerSettings(register_webhooks=False), HOME)))
    assert {our for our in ours - theirs if "mutatingwebhook" in our}
    assert not {their for their in theirs if "mutatingwebhook" in their}


@pytest.mark.parametrize(
    ("pod", "is_one"),
    [
        (addon(), True),
        (addon(priority=""), False),
        (addon(phase="Succeeded"), False),
        ({**addon(), "spec": 1}, False),
    ],
)
def test_which_pods_are_critical_add_ons(pod, is_one):
    result = add_on(msgspec.json.encode(pod), Criteria())
    assert (result is not None) is is_one


def test_faults_come_first_with_what_to_do_and_the_verdict_last(assert_golden):
    said = sort_findings(
        [
            Finding("a", "ok", "", "fine"),
            Finding("b", "note", "thing", "odd"),
            Finding("c", "unknown", "you", "may not", "ask"),
            Finding("d", "warning", "thing", "soon", "mend"),
            Finding("e", "fault", "thing", "broken", "mend now"),
        ]
    )
    report = DoctorReport(False, summary(said), "1", said)
    assert_golden(lines(report))


@pytest.mark.parametrize(
    ("severities", "text"),
    [
        (["ok", "note"], "Harbourmaster is healthy."),
        (["warning", "warning"], "Harbourmaster works, with 2 warnings."),
        (
            ["unknown"],
            ("Unknown whether Harbourmaster is healthy: 1 thing that could not be read."),
        ),
        (["fault", "fault"], "Harbourmaster is not healthy: 2 faults."),
    ],
)
def test_the_verdict(severities, text):
    assert summary([Finding("c", severity, "", "") for severity in severities]) == text


@pytest.mark.parametrize(
    ("severity", "code", "fail_on"),
    [
        ("ok", 0, "warning"),
        ("note", 0, "warning"),
        ("warning", 0, None),
        ("warning", 1, "warning"),
        ("unknown", 1, None),
        ("unknown", 0, "fault"),
        ("warning", 0, "fault"),
        ("fault", 1, "fault"),
        ("fault", 1, None),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
async def test_the_exit_code_and_both_outputs(
    monkeypatch, capfdbinary, severity, code, fail_on, output
):
    finding = Finding("canary", severity, "pod\x1b[2J", "text", "remedy")

    async def diagnosed(*_):
        return DoctorReport(severity in {"ok", "note"}, "verdict", "1", (finding,))

    monkeypatch.setattr(doctor, "diagnose", diagnosed)
    given = {"installed_in": HOME, "canary_namespace": None, "output": output, "fail_on": fail_on}
    arguments = type("A", (), given)
    assert await doctor._run(arguments, None) == code
    out, _ = capfdbinary.readouterr()
    assert b"\x1b" not in out
    if output == "json":
        assert json.loads(out)["findings"][0]["subject"] == "pod\x1b[2J"
    else:
        assert out.endswith(b"verdict\n")
