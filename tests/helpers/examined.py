"""A cluster in memory with a sound installation of ours, for tests to break."""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import yaml

from harbourmaster.api.resources import (
    ACCESS_REVIEWS,
    CLUSTER_POLICIES,
    CORE_EVENTS,
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    SELF_ACCESS_REVIEWS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TASK_DEFINITIONS,
)
from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.cli.doctor.run import diagnose
from harbourmaster.cli.installed import KEPTN_RESOURCES, POLICY_RESOURCES
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.client import ListPage
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.registration.additions import with_applied
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from helpers.objects import review
from helpers.oracles import apply_patch
from helpers.steps import faults_in

HOME = "harbourmaster-system"
NAME = "harbourmaster"
SECRET_NAME = "harbourmaster-webhook-cert"  # noqa: S105 - the name of an object
CONTROLLER = "harbourmaster-controller"
WEBHOOK = "harbourmaster-webhook"
CONVERTED = ("keptnapps.lifecycle.keptn.sh", "keptnappversions.lifecycle.keptn.sh")
DEPLOY = Path(__file__).parents[2] / "deploy"
_CLOCK = re.compile(r"(?<=server's by )\d+ s|(?<=expired at )\S+")


class ExaminedCluster:
    """Content and answers of an API server, in place of a Client.

    ``forbidden`` has plurals that may not be read, ``refused`` rights that our accounts lack, as
    (verb, plural). ``admit`` gets a pod that is tried; it returns the pod or raises ApiError.
    """

    greeting = b""

    def __init__(self):
        self.now = datetime.now(UTC)
        self.objects = {}
        self.forbidden = set()
        self.unserved = set()
        self.refused = set()
        self.lacking = set()
        self.connection = SimpleNamespace(namespace="default")
        self.version = {"major": "1", "minor": "36"}
        self.created = []
        self.engine = Engine(Snapshot(excluded=frozenset((HOME,))), AdmissionSettings())
        self.admit = self.answer_pod
        self.check = self.judge_object
        self.settings = ControllerSettings()
        self.authority = create_authority(self.now)
        leaf = issue_serving_certificate(self.now, self.authority, names_of(self.settings, HOME))
        for name in ("default", "kube-system", "shop", HOME):
            metadata = {"name": name, "uid": f"{name}-uid"}
            metadata["labels"] = {"kubernetes.io/metadata.name": name}
            self.put(NAMESPACES, {"metadata": metadata})
        data = {
            "ca.crt": self.authority.certificate,
            "tls.crt": leaf.certificate,
            "tls.key": leaf.key,
        }
        self.put(SECRETS, {"metadata": own_metadata(SECRET_NAME), "data": data})
        home = Home(HOME, f"{HOME}-uid")
        for resource, configuration in desired_configurations(
            self.settings.webhook, home, self.authority.certificate
        ).items():
            self.put(resource, with_applied(configuration, configuration))
        for folder, name in (("controller", CONTROLLER), ("webhook", WEBHOOK)):
            text = (DEPLOY / folder / "deployment.yaml").read_text()
            deployment = yaml.load(text, yaml.CSafeLoader)
            replicas = deployment["spec"]["replicas"]
            deployment["status"] = {"readyReplicas": replicas, "updatedReplicas": replicas}
            self.put(DEPLOYMENTS, deployment)
            self.put(SERVICE_ACCOUNTS, {"metadata": own_metadata(name)})
        self.put(SERVICES, {"metadata": own_metadata(WEBHOOK), "spec": {"type": "ExternalName"}})
        spec = {
            "holderIdentity": "pod-1",
            "leaseDurationSeconds": 15,
            "renewTime": self.now.isoformat().replace("+00:00", "Z"),
        }
        self.put(LEASES, {"metadata": own_metadata(CONTROLLER), "spec": spec})
        for policy_resource in (*POLICY_RESOURCES, *KEPTN_RESOURCES):
            self.put(DEFINITIONS, definition(policy_resource, self.authority.certificate))

    # What is there

    def put(self, resource, obj):
        metadata = obj["metadata"]
        key = (resource, metadata.get("namespace"), metadata["name"])
        self.objects[key] = obj
        return obj

    def at(self, resource, name, namespace=None):
        return self.objects[resource, namespace, name]

    def remove(self, resource, name, namespace=None):
        del self.objects[resource, namespace, name]

    def entry(self, name, resource=MUTATING_WEBHOOKS):
        webhooks = self.at(resource, NAME)["webhooks"]
        return next(webhook for webhook in webhooks if webhook["name"] == name)

    def container(self, name):
        deployment = self.at(DEPLOYMENTS, name, HOME)
        return deployment["spec"]["template"]["spec"]["containers"][0]

    def age(self, span):
        """Let the Lease be as old."""
        renewed = (self.now - timedelta(seconds=span)).isoformat().replace("+00:00", "Z")
        self.at(LEASES, CONTROLLER, HOME)["spec"]["renewTime"] = renewed

    # As a Client

    async def get(self, resource, name, namespace=None, **_):
        self._may("get", resource)
        try:
            return msgspec.json.encode(self.objects[resource, namespace, name])
        except KeyError:
            raise NotFoundError(f'{resource.plural} "{name}" not found', status=404) from None

    async def list(self, resource, namespace=None, field_selector="", **_):
        self._may("list", resource)
        uid = field_selector.removeprefix("involvedObject.uid=")
        listed = [
            msgspec.Raw(msgspec.json.encode(obj))
            for (kind, place, _), obj in self.objects.items()
            if kind == resource and namespace in {None, place}
            if resource != CORE_EVENTS or obj["involvedObject"]["uid"] == uid
        ]
        return ListPage(tuple(listed), "1", "")

    async def create(self, resource, obj, namespace=None, *, dry_run=False):
        if resource == SELF_ACCESS_REVIEWS:
            asked = obj["spec"]["resourceAttributes"]
            allowed = not {"*", asked["resource"]} & self.lacking
            return msgspec.json.encode({"status": {"allowed": allowed}})
        self._may("create", resource)
        if resource == ACCESS_REVIEWS:
            asked = obj["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.refused
            return msgspec.json.encode({"status": {"allowed": allowed}})
        assert dry_run
        self.created.append(resource.kind)
        obj = copy.deepcopy(obj)
        obj["metadata"]["namespace"] = namespace
        if resource == PODS:
            return msgspec.json.encode(self.admit(obj))
        return msgspec.json.encode(self.check(resource, obj))

    async def request(self, method, path, **_):
        if path.endswith("/selfsubjectreviews"):
            at = self.now.isoformat(timespec="seconds").replace("+00:00", "Z")
            user = {"userInfo": {"username": "ada"}}
            return msgspec.json.encode({"metadata": {"creationTimestamp": at}, "status": user})
        if path == "/version":
            return msgspec.json.encode(self.version)
        if path in self.unserved:
            raise NotFoundError("not found", status=404)
        # How many of a kind there are.
        return msgspec.json.encode({"metadata": {}, "items": []})

    def _may(self, verb, resource):
        if {"*", resource.plural} & self.forbidden:
            text = f'{resource.plural} is forbidden: User "ada" cannot {verb} it'
            raise ForbiddenError(text, status=403, reason="Forbidden")

    # What is asked on the way

    def answer_pod(self, pod):
        """Answer a pod as our webhook does."""
        asked = review(pod, namespace=pod["metadata"]["namespace"])
        asked["request"]["dryRun"] = True
        body, _ = answer(msgspec.json.encode(asked), self.engine)
        return apply_patch(pod, msgspec.json.decode(body)["response"])

    def judge_object(self, resource, obj):
        """Answer an object as a working webhook does: an invalid policy is denied."""
        if resource == CLUSTER_POLICIES:
            text = 'admission webhook "policies.harbourmaster.dev" denied the request: spec'
            raise ForbiddenError(text, status=403)
        assert resource == TASK_DEFINITIONS
        return obj


def own_metadata(name):
    return {"name": name, "namespace": HOME}


def definition(resource, authority):
    """A CRD as it is stored."""
    name = f"{resource.plural}.{resource.group}"
    conversion = {"strategy": "None"}
    if name in CONVERTED:
        service = {"name": WEBHOOK, "namespace": HOME}
        client = {"service": service, "caBundle": authority}
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
    return {
        "metadata": {"name": name},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [{"name": resource.version, "served": True, "storage": True}],
            "conversion": conversion,
        },
        "status": {
            "storedVersions": [resource.version],
            "conditions": [{"type": "Established", "status": "True"}],
        },
    }


def unreachable(why):
    """The error of an API server that can't call a webhook that fails closed."""
    text = (
        f'failed calling webhook "taskdefinitions.harbourmaster.dev": failed to call webhook: {why}'
    )
    return ApiError(text, status=500, reason="InternalError")


async def examine(cluster, **options):
    """The report on a cluster, whose steps are complete commands for objects that exist."""
    report = await diagnose(cluster, HOME, **options)
    steps = dict.fromkeys(finding.remedy for finding in report.findings)
    faults = [fault for step in steps for fault in faults_in(step, cluster.objects)]
    assert not faults, faults
    return report


def problems(report, *severities):
    """The findings that are not well, as (check, severity, subject: text)."""
    wanted = severities or ("fault", "warning", "unknown")
    return [
        (finding.check, finding.severity, f"{finding.subject}: {finding.text}")
        for finding in report.findings
        if finding.severity in wanted
    ]


def findings(report, check):
    """Return the lines of a check that is not ok, without what depends on the machine's clock."""
    lines = [
        f"{finding.severity} {finding.subject}: {finding.text} -> {finding.remedy}"
        for finding in report.findings
        if finding.check == check and finding.severity != "ok"
    ]
    return [_CLOCK.sub("…", line) for line in lines]


def each_fault(faults):
    """Return the mark that calls a test with the check and the function of each fault."""
    rows = [
        pytest.param(check, break_it, id=f"{check}: {name}")
        for check, by_name in faults.items()
        for name, break_it in by_name.items()
    ]
    return pytest.mark.parametrize(("check", "break_it"), rows)


async def assert_reported(cluster, assert_golden, check, break_it):
    """Cause a fault; assert what the check records, and that notes alone count as healthy."""
    break_it(cluster)
    report = await examine(cluster)
    lines = findings(report, check)
    assert_golden(lines)
    assert report.healthy is all(line.startswith("note ") for line in lines)
