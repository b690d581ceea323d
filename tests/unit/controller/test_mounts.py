"""The webhook's pods are marked with the certificate, so that the kubelet mounts it at once."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from harbourmaster.controller.registration import controller
from harbourmaster.controller.registration.controller import MARK
from helpers.registration import HOME, NAME, SECRET

WEBHOOK = {"app.kubernetes.io/name": "harbourmaster", "app.kubernetes.io/component": "webhook"}
CONTROLLER = {**WEBHOOK, "app.kubernetes.io/component": "controller"}


@pytest.fixture
def pod(api):
    """A function that makes a pod of ours."""

    def create(name, labels=WEBHOOK, namespace=HOME, **annotations):
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        return api.put(PODS, {"metadata": {**metadata, "annotations": annotations}})

    return create


@pytest.fixture
def mark(api):
    """A function that returns the mark of a pod."""
    return lambda name, namespace=HOME: api.get(PODS, name, namespace)["metadata"][
        "annotations"
    ].get(MARK, "")


async def test_pods_that_started_before_the_secret_are_marked_with_its_certificate(
    setting, pod, mark
):
    pod("first", note="mine")
    pod("second")
    setting.start()
    await setting.until(lambda: mark("first") and mark("second"))
    assert mark("first") == mark("second")
    assert setting.api.get(PODS, "first", HOME)["metadata"]["annotations"]["note"] == "mine"


async def test_only_pods_of_the_webhook_in_our_namespace_are_marked(setting, pod, mark):
    pod("controller", CONTROLLER)
    pod("foreign", namespace="ledger")
    pod("last")
    setting.start()
    await setting.until(lambda: mark("last"))
    assert (mark("controller"), mark("foreign", "ledger")) == ("", "")


async def test_a_certificate_that_replaces_a_lost_one_is_marked_too(setting, pod, mark):
    pod("first")
    setting.start()
    await setting.until(lambda: mark("first"))
    before = mark("first")
    setting.api.remove(SECRETS, SECRET, HOME)
    await setting.until(lambda: mark("first") != before)


async def test_a_pod_is_written_once_for_each_certificate_and_a_later_one_not_at_all(
    setting, api, pod, mark
):
    pod("first")
    setting.start()
    await setting.settle()
    await setting.until(lambda: mark("first"))
    pod("later")
    # One worker: when the second is back, all that followed the first is done.
    for _ in range(2):
        api.remove(MUTATING_WEBHOOKS, NAME)
        await setting.settle()
    written = [seen.path for seen in api.seen("patch") if "/pods/" in seen.path]
    assert [path.rpartition("/")[2] for path in written] == ["first"]
    assert mark("later") == ""


async def test_a_new_leader_marks_the_pods_that_the_last_one_left(setting, pod, mark):
    tasks = setting.start()
    await setting.settle()
    await setting.stop(tasks)
    pod("left")
    setting.start()
    await setting.until(lambda: mark("left"))


def warnings_of(capfd):
    """The log lines about mounts that were not requested."""
    lines = "\n".join(capfd.readouterr()).splitlines()
    return [line for line in lines if "mount of the certificate not requested" in line]


@pytest.mark.parametrize("status", [403, 404, 409, 422, 500])
async def test_a_pod_that_refuses_the_mark_harms_no_other(setting, api, pod, mark, status):
    pod("first")
    pod("second")
    api.fail_next("patch", "/pods/first", None, status=status)
    setting.start()
    await setting.until(lambda: mark("second"))
    assert mark("first") == ""


@pytest.mark.parametrize("request_", [("patch", "/pods/first$"), ("list", "/pods$")])
async def test_mounts_that_fail_are_no_failed_reconcile_and_logged_once_for_each_certificate(
    setting, pod, metrics, capfd, request_
):
    api = setting.api
    pod("first")
    api.fail_next(*request_, None, status=403)
    setting.start()

    async def attempt():
        attempts = len(api.seen(*request_))
        setting.look()
        await api.until_seen(*request_, attempts + 1)

    for _certificate in range(2):
        lines = []
        while not lines:
            await attempt()
            lines += warnings_of(capfd)
        for _ in range(3):
            await attempt()
        (line,) = lines + warnings_of(capfd)
        assert "grant the permission" in line
        assert "/namespaces/harbour/pods" in line
        api.remove(SECRETS, SECRET, HOME)
    errors = metrics.reconcile_errors.labels("registration", "ForbiddenError")
    assert errors._value.get() == 0


async def test_pods_that_could_not_be_marked_are_marked_at_the_next_look(
    setting, api, pod, mark, monkeypatch
):
    monkeypatch.setattr(controller, "AGAIN", 0.05)
    pod("first")
    api.fail_next("patch", "/pods/first", None, status=409)
    setting.start()
    await api.until_seen("patch", "/pods/first", 3)
    api.heal()
    await setting.until(lambda: mark("first"))


async def test_a_cancelled_look_ends_at_once_while_a_pod_is_marked(setting, api, pod):
    pod("first")
    pod("second")
    api.fail_next("patch", "/pods/first", kind="hang")
    tasks = setting.start()
    await api.until_seen("patch", "/pods/first")
    await setting.stop(tasks)
    assert all(task.cancelled() for task in tasks)
    assert api.seen("patch", "/pods/second") == []
