"""From the release before this one to this one, and back, under load."""

from __future__ import annotations

import pytest
import yaml

from helpers import node_objects as objects
from helpers import releases
from helpers.node import IMAGE, NAMESPACE, REPOSITORY, RUNNERS, figure, output
from helpers.releases import needs

# Packing fetches the packages of an image.
pytestmark = [pytest.mark.timeout(1200), *needs("buildah")]
WEBHOOK, CONTROLLER = "harbourmaster-webhook", "harbourmaster-controller"
STORED = ("clusterpodschedulingpolicies", "keptntaskdefinitions", "keptnworkloadversions")


@pytest.fixture(scope="module")
def before(node, tmp_path_factory):
    """The manifests of the release before, whose image the nodes have."""
    release = releases.pack(tmp_path_factory.mktemp("release"))
    node.load_image(release.image, releases.REPOSITORY)
    return list(yaml.safe_load_all(release.manifests.read_text()))


@pytest.fixture(scope="module")
def now(node):
    """The manifests of this checkout, as ``node`` has them installed."""
    rendered = output("kubectl", "kustomize", REPOSITORY / "deploy/default")
    objects = list(yaml.safe_load_all(rendered))
    for deployment in deployments(objects).values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["image"] = IMAGE
    (container,) = deployments(objects)[CONTROLLER]["spec"]["template"]["spec"]["containers"]
    container["args"] += RUNNERS
    return objects


def deployments(release):
    return {item["metadata"]["name"]: item for item in release if item["kind"] == "Deployment"}


def apply(node, release, *, webhook):
    """Apply everything of a release but the webhook's Deployment, or that one alone."""
    chosen = [item for item in release if (item is deployments(release)[WEBHOOK]) == webhook]
    flags = ("--server-side", "--force-conflicts", "--filename=-")
    node.kubectl("apply", *flags, stdin=yaml.safe_dump_all(chosen))
    node.rollout(WEBHOOK if webhook else CONTROLLER)


def undo(node):
    """Return to the Deployments of the release before, with roles and CRDs of this one."""
    for name in (CONTROLLER, WEBHOOK):
        node.kubectl("rollout", "undo", f"deployment/{name}", f"--namespace={NAMESPACE}")
        node.rollout(name)


def images(node):
    pods = node.get("pods", f"--namespace={NAMESPACE}", "--field-selector=status.phase=Running")
    return {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"]["containers"][0][
            "image"
        ]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def specs(node, place):
    restarts = {}
    for kind in STORED:
        for item in node.get(kind, f"--namespace={place}"):
            restarts[kind, item["metadata"]["name"]] = item["spec"]
    return restarts


def runs(node, place, name):
    """A gated Deployment passes its one task, and its pods get the policy."""
    node.apply(objects.deployment(place, name, tasks=["check"]))
    node.wait("condition=Available", f"--namespace={place}", f"deployment/{name}")


def version_of(node, place, name):
    """The workload version of a Deployment, once it is there."""
    version = f"keptnworkloadversion/{objects.version_name(name)}"
    node.wait("create", f"--namespace={place}", version)
    return version


def gates(node, place, app):
    (pod,) = node.get("pods", f"--namespace={place}", f"--selector=app={app}")
    return pod["spec"].get("schedulingGates", [])


def test_an_upgrade_and_the_way_back_lose_no_request_and_no_object(node, place, before, now):
    old_image = deployments(before)[WEBHOOK]["spec"]["template"]["spec"]["containers"][0]["image"]
    slow = objects.shell_task(place, "slow", "sleep 20")
    node.apply(objects.shell_task(place, "check", "true"), slow)
    node.apply(objects.shell_task(place, "fails", "exit 1"))
    with node.load() as load:
        apply(node, before, webhook=False)
        assert images(node) == {"controller": old_image, "webhook": IMAGE}
        runs(node, place, "back-skewed")
        apply(node, before, webhook=True)
        assert images(node) == {"controller": old_image, "webhook": old_image}
        runs(node, place, "back")
        back = len(load.seconds), len(load.bad)
        node.apply(objects.deployment(place, "stall", tasks=["fails"]))
        version = version_of(node, place, "stall")
        failed = "jsonpath={.status.preDeploymentStatus}=Failed"
        node.wait(failed, f"--namespace={place}", version)
        node.apply(objects.deployment(place, "crossing", tasks=["slow"]))
        version_of(node, place, "crossing")
        stored = specs(node, place)

        apply(node, now, webhook=False)
        assert images(node) == {"controller": IMAGE, "webhook": old_image}
        runs(node, place, "forth-skewed")
        apply(node, now, webhook=True)
        assert images(node) == {"controller": IMAGE, "webhook": IMAGE}
        runs(node, place, "forth")
        node.wait("condition=Available", f"--namespace={place}", "deployment/crossing")
    figure(f"from this release to {releases.VERSION}: {back[1]} of {back[0]} pods are bad")
    figure(f"and to this release again, both ways together: {load}")
    assert load.bad == []
    after = specs(node, place)
    assert {key: after.get(key) for key in stored} == stored
    assert gates(node, place, "stall")
    jobs = node.get("jobs", f"--namespace={place}")
    tasks = [job["metadata"]["annotations"]["keptn.sh/workload"] for job in jobs]
    assert sorted(tasks) == sorted(set(tasks))

    undo(node)
    assert images(node) == {"controller": old_image, "webhook": old_image}
    runs(node, place, "undone")
    for webhook in (False, True):
        apply(node, now, webhook=webhook)
