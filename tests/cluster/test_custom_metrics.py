"""Metric values, as a real API server, its HPAs and its users read them (keptn-spec 4.4, 9)."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
import threading
import urllib.error
import urllib.request

import aiohttp
import pytest

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.registration.ca_injector import SERVED
from harbourmaster.playground.api import client_context
from harbourmaster.playground.installation import Installation
from harbourmaster.playground.pki import FRONT_PROXY
from helpers.cluster import delete_namespace, eventually, plane_for
from helpers.exposure import headers_of
from helpers.patience import PATIENCE, WAIT

HOME = "harbourmaster-system"
CERTIFICATE = "harbourmaster-webhook-cert"
GROUP = "custom.metrics.k8s.io"
KIND = "keptnmetrics.metrics.keptn.sh"
QUICK = ("--certificates-publish-seconds=2", "--metrics-expose=true")
ALIAS = "keptnmetrics.metrics.sh"


@pytest.fixture(scope="module")
def place(request, tmp_path_factory):
    """A control plane with two controllers, and what else an installation has."""
    with plane_for(request, tmp_path_factory, "metrics") as plane:
        plane.add_nodes(1)
        with Installation(plane, controllers=2, arguments={"controller": QUICK}) as installation:
            yield MetricsCluster(plane, installation)


@pytest.fixture
def space(place, request):
    """A namespace with nothing in it."""
    name = request.node.name.replace("_", "-").partition("[")[0][:50].strip("-")
    place.kubectl("create", "namespace", name)
    yield name
    delete_namespace(place.kubectl, name)


class MetricsCluster:
    """The cluster, and who asks it."""

    def __init__(self, plane, installation):
        self.plane = plane
        self.installation = installation
        self.kubectl = plane.kubectl

    @property
    def ports(self):
        """The ports of the custom metrics API, one for each controller."""
        return [controller.metrics_api_port for controller in self.installation.controllers]

    @property
    def values(self):
        """The URLs of the plain ports."""
        return [
            f"http://127.0.0.1:{controller.values_port}"
            for controller in self.installation.controllers
        ]

    def create(self, *items, namespace):
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
        self.kubectl("create", "-f=-", f"--namespace={namespace}", stdin=manifest)

    def measure(self, namespace, name, value, *, labels=None, age=0):
        """Let a metric have a value, as its controller would write it; make it where it isn't."""
        if self.kubectl("get", KIND, name, f"-n={namespace}", check=False).returncode:
            self.create(metric(name, labels), namespace=namespace)
        then = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)
        status = {"value": value, "rawValue": "eA==", "lastUpdated": format_rfc3339(then)}
        patch = json.dumps({"status": status})
        flags = ("--subresource=status", "--type=merge", f"--patch={patch}")
        self.kubectl("patch", KIND, name, f"-n={namespace}", *flags)

    def raw(self, path, *flags):
        """The API server's answer; None and the error if it refuses."""
        result = self.kubectl("get", "--raw", path, *flags, check=False)
        return (json.loads(result.stdout), "") if not result.returncode else (None, result.stderr)

    def read_values(self, namespace, path="*/*", version="v1beta2"):
        """The values of a namespace by name."""
        listed, fault = self.raw(path_of(namespace, path, version))
        assert not fault, fault
        return {item["describedObject"]["name"]: item["value"] for item in listed["items"]}

    def authority(self):
        """The authorities that the APIServices trust, one of each."""
        result = json.loads(self.kubectl("get", "apiservices", *SERVED, "-o=json").stdout)
        return [base64.b64decode(item["spec"].get("caBundle", "")) for item in result["items"]]

    def leaf(self, port=None):
        """The certificate that a controller presents."""
        return ssl.get_server_certificate(("127.0.0.1", port or self.ports[0]))


def metric(name, labels=None):
    return {
        "apiVersion": "metrics.keptn.sh/v1",
        "kind": "KeptnMetric",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"provider": {"name": "none"}, "query": "x", "fetchIntervalSeconds": 3600},
    }


def path_of(namespace, path, version="v1beta2", kind=KIND):
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/{kind}/{path}"


def are_available(place):
    for name in SERVED:
        place.kubectl("wait", "--for=condition=Available", f"apiservice/{name}", WAIT)


def test_both_versions_are_available_and_discovered(place):
    are_available(place)
    for name in SERVED:
        version = name.partition(".")[0]
        listed, _ = place.raw(f"/apis/{GROUP}/{version}")
        assert [resource["name"] for resource in listed["resources"]] == [f"{KIND}/*"]
    listed, _ = place.raw("/apis")
    (group,) = [candidate for candidate in listed["groups"] if candidate["name"] == GROUP]
    assert group["preferredVersion"]["version"] == "v1beta2"
    # What aggregation needs of the schemas of all.
    assert place.raw("/openapi/v2")[0]["paths"]
    index, _ = place.raw("/openapi/v3")
    assert place.raw(index["paths"][f"apis/{GROUP}/v1beta2"]["serverRelativeURL"])[0]["openapi"]


def test_values_are_read_in_both_versions(place, space):
    are_available(place)
    place.measure(space, "berths", "12.5", labels={"quay": "east"})
    place.measure(space, "ships", "4", labels={"quay": "west"})
    expected = {"berths": "12500m", "ships": "4"}
    eventually(lambda: place.read_values(space), is_right=lambda value: value == expected)
    assert place.read_values(space, "*/*", "v1beta1") == expected
    assert place.read_values(space, "berths/berths") == {"berths": "12500m"}
    assert place.read_values(space, "*/*?labelSelector=quay%3Dwest") == {"ships": "4"}
    (item,) = place.raw(path_of(space, "ships/ships", "v1beta1"))[0]["items"]
    assert item["metricName"] == "ships"
    assert item["describedObject"]["kind"] == "KeptnMetric"
    (item,) = place.raw(path_of(space, "ships/ships"))[0]["items"]
    assert item["metric"]["name"] == "ships"
    # As Keptn's documentation asks.
    (item,) = place.raw(path_of(space, "ships/ships", "v1beta1", ALIAS))[0]["items"]
    assert (item["metricName"], item["value"]) == ("ships", "4")


def test_what_has_no_value_that_counts_is_not_found(place, space):
    place.create(metric("none"), namespace=space)
    place.measure(space, "old", "5", age=3 * 3600)
    place.measure(space, "new", "5")
    eventually(lambda: place.read_values(space), is_right=lambda value: value == {"new": "5"})
    for name in ("none", "old", "absent"):
        answer, fault = place.raw(path_of(space, f"{name}/{name}"))
        assert answer is None
        assert "NotFound" in fault


def workload(name):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "registry.example.com/a"}]},
            },
        },
    }


def scaler(name, measured):
    """A HorizontalPodAutoscaler as users of Keptn write it."""
    described = {"apiVersion": "metrics.keptn.sh/v1", "kind": "KeptnMetric", "name": measured}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 5,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            "metrics": [
                {
                    "type": "Object",
                    "object": {
                        "describedObject": described,
                        "metric": {"name": measured},
                        "target": {"type": "Value", "value": "10"},
                    },
                }
            ],
        },
    }


def test_an_hpa_scales_by_a_metric_and_not_by_its_absence(place, space):
    are_available(place)
    place.create(workload("crane"), scaler("crane", "load"), namespace=space)
    place.measure(space, "load", "30")

    def scaled_to(replicas):
        wanted = f"--for=jsonpath={{.spec.replicas}}={replicas}"
        place.kubectl("wait", "deployment/crane", f"-n={space}", wanted, WAIT)

    def condition():
        status = place.kubectl("get", "hpa", "crane", f"-n={space}", "-o=json").stdout
        conditions = json.loads(status)["status"].get("conditions", [])
        return next(
            (condition for condition in conditions if condition["type"] == "ScalingActive"), {}
        )

    scaled_to(3)
    place.kubectl("rollout", "status", "deployment/crane", f"-n={space}", WAIT)
    place.measure(space, "load", "1", age=3 * 3600)
    obj = eventually(condition, is_right=lambda obj: obj.get("status") == "False")
    assert obj["reason"] == "FailedGetObjectMetric"
    # Twice the time in which it looks again: 0 would have taken two of the three away.
    place.measure(space, "load", "")
    place.kubectl(
        "wait",
        "deployment/crane",
        f"-n={space}",
        "--for=jsonpath={.spec.replicas}=1",
        "--timeout=5s",
        check=False,
    )
    deployment = place.kubectl("get", "deployment", "crane", f"-n={space}", "-o=json").stdout
    assert json.loads(deployment)["spec"]["replicas"] == 3
    place.measure(space, "load", "1")
    scaled_to(1)


def may_read(place, namespace, name, user, kind):
    """Give the user the right to one metric under this name of its kind."""
    rule = {"apiGroups": [GROUP], "resources": [f"{kind}/load"], "verbs": ["get"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [rule],
    }
    place.create(role, namespace=namespace)
    flags = (f"--role={name}", f"--user={user}", f"-n={namespace}")
    place.kubectl("create", "rolebinding", name, *flags)


@pytest.mark.claim("M1")
def test_only_who_may_reads_a_value(place, space):
    are_available(place)
    place.measure(space, "load", "30")
    user = f"jane-{space}"
    answer, fault = place.raw(path_of(space, "load/load"), f"--as={user}")
    assert answer is None
    assert "Forbidden" in fault
    alias = path_of(space, "load/load", kind=ALIAS)
    may_read(place, space, "alias", user, ALIAS)
    # The API server lets it through now, and we don't.
    eventually(
        lambda: place.raw(alias, f"--as={user}"),
        is_right=lambda value: value[0] is None and f'resource "{KIND}/load"' in value[1],
    )
    may_read(place, space, "reader", user, KIND)
    eventually(
        lambda: place.raw(alias, f"--as={user}")[0],
        is_right=lambda value: value is not None,
    )
    eventually(
        lambda: place.raw(path_of(space, "load/load"), f"--as={user}")[0],
        is_right=lambda value: value is not None,
    )
    assert place.raw(path_of("default", "load/load"), f"--as={user}")[0] is None


async def direct(place, path, context, user="", method="GET"):
    """Ask a controller itself; the status."""
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    headers = headers_of(user, ["system:authenticated"]) if user else []
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(
            method, f"https://127.0.0.1:{place.ports[0]}{path}", headers=headers
        ) as answer,
    ):
        return answer.status


@pytest.mark.claim("M1")
async def test_who_comes_directly_must_be_the_api_server(place, space):
    await asyncio.to_thread(place.measure, space, "load", "30")
    path = path_of(space, "load/load")
    stranger = ssl.create_default_context()
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    assert await direct(place, path, stranger, "kubernetes-admin") == 401
    assert await direct(place, f"/apis/{GROUP}", stranger) == 401
    assert await direct(place, "/healthz", stranger) == 200
    # The administrator's certificate is good for the API server, and for nothing here.
    admin = client_context(place.plane.layout.pki, "admin")
    admin.check_hostname = False
    admin.verify_mode = ssl.CERT_NONE
    with pytest.raises((aiohttp.ClientError, OSError)):
        await direct(place, path, admin, "kubernetes-admin")
    proxy = client_context(place.plane.layout.pki, FRONT_PROXY)
    proxy.check_hostname = False
    proxy.verify_mode = ssl.CERT_NONE
    assert await direct(place, path, proxy) == 401
    assert await direct(place, path, proxy, "jane") == 403
    hpa = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    assert await direct(place, path, proxy, hpa) == 200
    assert await direct(place, path, proxy, hpa, "POST") == 405


def test_every_replica_answers(place, space):
    place.measure(space, "load", "30")
    for url in place.values:
        value = eventually(
            lambda url=url: rest(url, space, "load"), is_right=lambda value: value[1]
        )
        assert json.loads(value[1]) == {"metric": "load", "namespace": space, "value": "30"}
    assert len({place.leaf(port) for port in place.ports}) == 1


def rest(url, namespace, name):
    try:
        with urllib.request.urlopen(f"{url}/api/v1/metrics/{namespace}/{name}") as answer:  # noqa: S310 -- ours
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Asking:
    """Asks for a value again and again meanwhile; ``faults`` are the answers that were none."""

    def __init__(self, place, path):
        self.faults = []
        self.count = 0
        self._place, self._path = place, path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _ask(self):
        while not self._stopped.is_set():
            _, fault = self._place.raw(self._path)
            self.count += 1
            if fault:
                self.faults.append(fault)


def test_a_new_authority_is_taken_up_without_one_failed_request(place, space):
    are_available(place)
    place.measure(space, "load", "30")
    eventually(lambda: place.read_values(space), is_right=lambda value: value == {"load": "30"})
    before, leaf = place.authority(), place.leaf()
    ask = json.dumps({"data": {"next-ca.crt": ""}})
    with Asking(place, path_of(space, "load/load")) as asking:
        place.kubectl("patch", "secret", CERTIFICATE, f"-n={HOME}", f"--patch={ask}")
        for port in place.ports:
            eventually(lambda port=port: place.leaf(port), is_right=lambda value: value != leaf)
        eventually(place.authority, is_right=lambda value: value != before)
        asked = asking.count
        eventually(lambda: asking.count, is_right=lambda count: count > asked + 3)
    assert asking.faults == []
    assert asking.count > 5
    are_available(place)


@pytest.mark.timeout(2 * PATIENCE)
def test_a_namespace_goes_while_the_api_is_served_and_nothing_crashes(place):
    place.kubectl("create", "namespace", "brief")
    place.measure("brief", "load", "1")
    place.kubectl("delete", "namespace", "brief", WAIT)
    controllers = place.installation.controllers
    assert controllers
    for controller in controllers:
        log = place.installation.log(controller.name).read_text()
        assert "Traceback" not in log
        assert '"level":"error"' not in log
