"""References across namespaces, made by a tenant with the role ``edit`` (decision D17)."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex

import pytest

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_VALUE_TEMPLATES,
    EVALUATIONS,
    MAGNUM_CLUSTERS,
    METRICS_PROVIDERS,
    PROJECTS,
    SECRETS,
)
from harbourmaster.cli.main import main
from helpers.cluster import create, eventually, role_binding, why_refused
from helpers.flow.manifests import of_kind
from helpers.manifests import ROOT
from helpers.scripted_prometheus import ScriptedPrometheus, matrix

pytestmark = pytest.mark.gate

FLAGS = ("--metrics-allowed-addresses=127.0.0.0/8", "--placement-enabled=true")
METRICS = "metrics.keptn.sh/v1"
PLACEMENT = "placement.harbourmaster.dev/v1alpha1"
BASIC = f"Basic {base64.b64encode(b'platform:s3cr3t').decode()}"
TIMEFRAME = {"from": "2026-03-01T11:55:00Z", "to": "2026-03-01T12:00:00Z"}
BEGIN = 1772366100


def mode(name):
    """The controller's flags with this mode."""
    flags = (*FLAGS, f"--cross-namespace-references={name}")
    return pytest.mark.parametrize("controller_flags", [flags], ids=[name])


@pytest.fixture
def controller_flags(roles):
    return FLAGS


class Tenant:
    """Somebody with the role ``edit`` in one namespace, and nothing else."""

    def __init__(self, flow, harbour):
        self.flow = flow
        self.name = flow.namespace
        self._plane = harbour.plane

    async def admin(self, *arguments, stdin=None):
        """Run kubectl as the administrator, in the namespace."""
        return await asyncio.to_thread(
            self._plane.kubectl, *arguments, f"--namespace={self.name}", stdin=stdin
        )

    async def begin(self):
        """Get the role, and wait until it is effective."""
        user = f"user-{self.name}"
        create(self._plane.kubectl, role_binding(user, self.name, user, "edit"))
        for resource in (ANALYSIS_VALUE_TEMPLATES, PROJECTS):
            path = f"{resource.path(self.name)}?dryRun=All"
            request = (self._plane.kubectl, user, "POST", path, {})
            await asyncio.to_thread(
                eventually, lambda request=request: "forbidden" not in why_refused(*request)
            )

    async def create(self, *manifests, by_admin=False):
        """Create objects as the tenant; those of another namespace are refused by the role."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        user = () if by_admin else (f"--as=user-{self.name}",)
        await self.admin("create", "-f=-", *user, stdin=listed)

    async def why(self, *what):
        """The output of ``why`` about it."""
        return await asyncio.to_thread(self._why, what)

    def _why(self, what):
        return main(["why", *what, "--kubeconfig", str(self._plane.kubeconfig)])

    async def get(self, resource, name):
        return json.loads(await self.flow.client.get(resource, name, self.name))


@pytest.fixture(scope="module")
def roles(harbour):
    """The roles for people, which are aggregated to ``edit``, and our rights for placement."""
    for path in ("rbac/users.yaml", "components/placement/rights.yaml"):
        harbour.plane.kubectl("apply", f"--filename={ROOT / 'deploy' / path}")


@pytest.fixture
async def tenant(harbour, client, roles):
    async with harbour.flow(client, "tenant", enabled=False) as flow:
        tenant = Tenant(flow, harbour)
        await tenant.begin()
        yield tenant


@pytest.fixture
async def platform(harbour, client, roles):
    """A tenant with a Prometheus and a password; ``server`` sees all that reaches it."""
    async with (
        harbour.flow(client, "platform", enabled=False) as flow,
        ScriptedPrometheus() as server,
    ):
        tenant = Tenant(flow, harbour)
        tenant.server = server
        server.say["revenue"] = matrix("4242.5", at=BEGIN)
        login = {"user": "platform", "password": "s3cr3t"}
        await flow.client.create(SECRETS, of_kind("Secret", "login", stringData=login), tenant.name)
        spec = {
            "type": "prometheus",
            "targetServer": server.url,
            "secretKeyRef": {"name": "login", "key": "user"},
        }
        provider = object_of("KeptnMetricsProvider", "prom", tenant.name, spec)
        await flow.client.create(METRICS_PROVIDERS, provider, tenant.name)
        yield tenant


def object_of(kind, name, namespace, spec, api_version=METRICS, **metadata):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


async def analyse(tenant, platform, provider="prom"):
    """Let a tenant try to read a value of platform's."""
    to = {"name": provider, "namespace": platform.name}
    template = {"provider": to, "query": "revenue"}
    definition = {
        "objectives": [{"analysisValueTemplateRef": {"name": "steal"}}],
        "totalScore": {"passPercentage": 90, "warningPercentage": 50},
    }
    analysis = {"timeframe": TIMEFRAME, "analysisDefinition": {"name": "steal"}}
    await tenant.create(
        object_of("AnalysisValueTemplate", "steal", tenant.name, template),
        object_of("AnalysisDefinition", "steal", tenant.name, definition),
        object_of("Analysis", "steal", tenant.name, analysis),
    )


def command(tenant, platform, kind="keptnmetricsprovider", name="prom"):
    annotation = f"harbourmaster.dev/allow-from={tenant.name}"
    return f"kubectl annotate {kind} -n {platform.name} {name} {annotation}"


def refusal(tenant, platform, kind="keptnmetricsprovider", name="prom"):
    return (
        f'no consent to references from namespace "{tenant.name}": {kind} {platform.name}/{name}: '
        f"{command(tenant, platform, kind, name)}"
    )


@pytest.mark.claim("O14")
async def test_a_tenants_template_does_not_reach_the_provider_of_another(tenant, platform, capsys):
    await analyse(tenant, platform)
    event = await tenant.flow.until_told("ReferenceRefused", "steal", type="Warning")
    text = refusal(tenant, platform)
    assert event["note"] == f"steal: {text}"
    status = (await tenant.get(ANALYSES, "steal"))["status"]
    assert status["state"] == "Progressing"
    assert status["storedValues"]["steal"]["errMsg"] == text
    capsys.readouterr()
    assert await tenant.why("analysis", f"{tenant.name}/steal") == 0
    assert text in capsys.readouterr().out
    assert platform.server.logins == []
    # The administrator of platform runs the command that all of them name.
    await platform.admin(*shlex.split(command(tenant, platform))[1:])
    await tenant.flow.until_told("AnalysisCompleted", "steal")
    status = (await tenant.get(ANALYSES, "steal"))["status"]
    assert "4242.5" in status["raw"]
    assert platform.server.logins == [BASIC]


@pytest.mark.claim("O14")
async def test_the_refusal_is_the_same_where_the_provider_does_not_exist(tenant, platform):
    await analyse(tenant, platform, "secret-name")
    event = await tenant.flow.until_told("ReferenceRefused", "steal")
    assert event["note"] == f"steal: {refusal(tenant, platform, name='secret-name')}"
    assert platform.server.logins == []


@mode("Open")
async def test_where_references_are_open_a_provider_of_another_is_asked(tenant, platform):
    await analyse(tenant, platform)
    await tenant.flow.until_told("AnalysisCompleted", "steal")
    assert platform.server.logins == [BASIC]


def evaluation(tenant, platform):
    reference = {"name": "cpus", "namespace": platform.name}
    objective = {"keptnMetricRef": reference, "evaluationTarget": ">5"}
    lifecycle = "lifecycle.keptn.sh/v1"
    spec = {"evaluationDefinition": "steal", "workload": "w", "workloadVersion": "1"}
    return (
        object_of(
            "KeptnEvaluationDefinition",
            "steal",
            tenant.name,
            {"objectives": [objective]},
            api_version=lifecycle,
        ),
        object_of("KeptnEvaluation", "steal", tenant.name, spec, api_version=lifecycle),
    )


@mode("ProvidersNeedConsent")
async def test_a_metric_of_another_is_read_where_only_providers_need_consent(tenant, platform):
    await platform.flow.measure("cpus", "4242.5")
    await tenant.flow.create(*evaluation(tenant, platform))
    finished = await tenant.flow.until_like(
        EVALUATIONS, "steal", {"status": {"overallStatus": "Succeeded"}}
    )
    assert finished["status"]["evaluationStatus"]["cpus"]["value"] == "4242.5"


@pytest.mark.claim("O14")
@mode("AllNeedConsent")
async def test_a_metric_of_another_needs_consent_where_all_do(tenant, platform):
    await platform.flow.measure("cpus", "4242.5")
    await tenant.flow.create(*evaluation(tenant, platform))
    text = refusal(tenant, platform, "keptnmetric", "cpus")
    finished = await tenant.flow.until_like(
        EVALUATIONS, "steal", {"status": {"evaluationStatus": {"cpus": {"message": text}}}}
    )
    assert "4242.5" not in json.dumps(finished)
    await tenant.flow.until_told("ReferenceRefused", "steal", type="Warning")
    await platform.admin(*shlex.split(command(tenant, platform, "keptnmetric", "cpus"))[1:])
    await tenant.flow.until_like(EVALUATIONS, "steal", {"status": {"overallStatus": "Succeeded"}})


@pytest.mark.claim("O15")
async def test_a_foreign_project_does_not_take_a_magnum_cluster(tenant, platform, capsys):
    """``platform`` is the attacker here: its project is for everybody's clusters."""
    allow = {"harbourmaster.dev/allow-from": "*"}
    trap = object_of("Project", "trap", platform.name, _PROJECT, PLACEMENT, annotations=allow)
    await platform.create(
        {**trap, "metadata": {**trap["metadata"], "labels": {"taken": "yes"}}}, by_admin=True
    )
    await tenant.create(
        object_of("MagnumCluster", "mine", tenant.name, {}, PLACEMENT), by_admin=True
    )
    event = await tenant.flow.until_told("NoSuitableTarget", "mine", type="Warning")
    stored = await tenant.get(MAGNUM_CLUSTERS, "mine")
    assert "project" not in stored["status"]
    assert "taken" not in stored["metadata"].get("labels", {})
    assert platform.name not in json.dumps(stored["status"])
    capsys.readouterr()
    assert await tenant.why("magnumcluster", f"{tenant.name}/mine") == 0
    text = (
        "projects of other namespaces need consent: kubectl annotate project -n NAMESPACE NAME "
        f"harbourmaster.dev/allow-from={tenant.name} and kubectl annotate magnumcluster -n "
        f"{tenant.name} mine harbourmaster.dev/allow-from=NAMESPACE"
    )
    assert text in event["note"]
    assert text in capsys.readouterr().out
    # Its owner allows that namespace; the event of the watch has it decided again.
    permission = f"harbourmaster.dev/allow-from={platform.name}"
    await tenant.admin("annotate", "magnumcluster", "mine", permission)
    await tenant.flow.until_told("Scheduled", "mine")
    stored = await tenant.get(MAGNUM_CLUSTERS, "mine")
    assert stored["status"]["project"]["namespace"] == platform.name


_PROJECT = {
    "template": "trap",
}


@pytest.mark.claim("O16")
async def test_doctor_and_migrate_print_the_commands_that_consent(
    harbour, tenant, platform, capsys
):
    await analyse(tenant, platform)
    await tenant.flow.until_told("ReferenceRefused", "steal")
    await platform.admin(
        "annotate", "keptnmetricsprovider", "prom", "harbourmaster.dev/allow-from=other"
    )
    kubeconfig = ["--kubeconfig", str(harbour.plane.kubeconfig)]
    consent = command(tenant, platform).replace("=", "=other,", 1) + " --overwrite"
    for name in ("doctor", "migrate"):
        capsys.readouterr()
        await asyncio.to_thread(main, [name, *kubeconfig])
        assert consent.removeprefix("kubectl ") in capsys.readouterr().out
    await platform.admin(*shlex.split(consent)[1:])
    await tenant.flow.until_told("AnalysisCompleted", "steal")
    capsys.readouterr()
    await asyncio.to_thread(main, ["doctor", *kubeconfig])
    assert tenant.name not in capsys.readouterr().out
