"""``harbourmaster doctor`` on a real installation: each fault by its name, and well again."""

from __future__ import annotations

import pytest

from harbourmaster.cli.doctor.checks import CHECKS
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.survey import observe
from helpers.doctor.deployed_installation import HOME, look, named, until
from helpers.doctor.installation_faults import FAULTS

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]


async def test_a_healthy_installation_is_said_to_be_healthy(deployed, doctored):
    report = await until(doctored, lambda report: report.healthy)
    assert report.summary == "Harbourmaster is healthy."
    assert {finding.severity for finding in report.findings} <= {"ok", "note"}
    assert {finding.check for finding in report.findings} == {check.name for check in CHECKS}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_named_with_its_remedy_and_healed(deployed, doctored, fault):
    make, (check, severity, words), remedy = FAULTS[fault]
    await until(doctored, lambda report: report.healthy)
    with make(deployed):
        report = await until(doctored, lambda report: named(report, check, severity, words))
        assert all(remedy in finding.remedy for finding in named(report, check, severity, words))
        assert not report.healthy
        order = [finding.severity for finding in report.findings]
        ranks = ["fault", "warning", "unknown", "note", "ok"]
        assert order == sorted(order, key=ranks.index)
    await until(doctored, lambda report: report.healthy)


async def test_pods_of_our_scheduler_are_no_leftovers_by_its_settings(deployed, doctored):
    spec = {
        "schedulerName": "keptn-scheduler",
        "containers": [{"name": "ledger", "image": "registry.example.com/ledger:3"}],
    }
    metadata = {"name": "waits", "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    with deployed.there(pod):
        await until(doctored, lambda report: named(report, "leftovers", "fault", "pod waits"))
        with deployed.configured("controller", "--scheduler-enabled=true"):
            report = await look(doctored)
            assert not any("waits" in finding.subject for finding in report.findings)
            observed = await observe(Installation(doctored, HOME))
            assert (observed.pods, observed.scheduled_pods) == ((), 0)
    await until(doctored, lambda report: report.healthy)
