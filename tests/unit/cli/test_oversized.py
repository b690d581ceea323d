"""``doctor`` and ``migrate`` list stored objects that are over the limits for new ones."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APPS, DEFINITIONS, KEPTN_METRICS
from harbourmaster.cli.installed import DEFAULT_NAMESPACE
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.kube import transport
from harbourmaster.kube.errors import TooLargeError
from helpers.examined import ExaminedCluster, definition, examine
from helpers.fake_api import FakeApi

TOO_MANY = "spec.workloads: too many: 1500"


def app(name, count):
    workloads = [{"name": f"w{number}", "version": "1"} for number in range(count)]
    return {
        "apiVersion": APPS.api_version,
        "kind": APPS.kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"version": "1", "workloads": workloads},
    }


def put(cluster):
    for number in range(7):
        cluster.put(APPS, app(f"wide-{number}", 1500))
    cluster.put(APPS, app("narrow", 512))


@pytest.mark.claim("O13")
async def test_doctor_lists_them():
    cluster = ExaminedCluster()
    put(cluster)
    report = await examine(cluster)
    result = [finding for finding in report.findings if finding.check == "sizes"]
    assert {finding.severity for finding in result} == {"note"}
    assert [finding.subject for finding in result] == [f"KeptnApp shop/wide-{n}" for n in range(7)]
    assert result[0].text == f"over the limits for new objects: {TOO_MANY}"
    assert report.healthy


async def test_doctor_says_that_nothing_is_too_large():
    report = await examine(ExaminedCluster())
    (result,) = (finding for finding in report.findings if finding.check == "sizes")
    assert (result.severity, result.text) == (
        "ok",
        "no stored object is over the limits for new ones",
    )


@pytest.mark.claim("O13")
async def test_migrate_lists_what_keptn_stored():
    async with FakeApi() as api:
        api.put(DEFINITIONS, definition(APPS, b""))
        put(api)
        async with api.client() as client:
            observed = await read_observed(Installation(client, DEFAULT_NAMESPACE))
    result = [finding for finding in findings(observed) if finding.code == "over-limits"]
    assert [finding.object for finding in result] == [f"KeptnApp shop/wide-{n}" for n in range(7)]
    assert f"larger than new objects may be: {TOO_MANY}: it keeps working" in result[0].why


async def test_large_objects_do_not_keep_a_command_from_listing_them(monkeypatch):
    monkeypatch.setattr(transport, "MAX_ANSWER", 50_000)
    async with FakeApi() as api, api.client() as client:
        for number in range(60):
            noted = {"note": "x" * 1000}
            api.put(
                KEPTN_METRICS,
                {"metadata": {"name": f"m-{number}", "namespace": "a", "annotations": noted}},
            )
        assert len(await collect(client, KEPTN_METRICS, metadata_in)) == 60
        monkeypatch.setattr(transport, "MAX_ANSWER", 5000)
        with pytest.raises(TooLargeError):
            await collect(client, KEPTN_METRICS, metadata_in)
