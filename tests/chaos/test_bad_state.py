"""Bad states that users and accidents leave: they are repaired, and admission continues meanwhile.

Configurations fail closed here, so a review without an answer is a refused pod.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.playground.kubelet import publish
from harbourmaster.playground.workloads import CERTIFICATE_KEYS
from helpers.certificates import foreign_authority, foreign_leaf, pem
from helpers.faults.proxied_installation import LEASE, equals, note, proxied_installation, until
from helpers.faults.stored_objects import LEASE as LEASE_PATH
from helpers.faults.stored_objects import MUTATING, POLICIES, SECRET, VALIDATING, namespace
from helpers.load.reviews import NAME, Reviews, Steady
from helpers.objects import cluster_policy, workload
from helpers.registration import KEYS, bundles_of, data_of, served_leaf, trusts

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

ACCOUNT = "system:serviceaccount:harbourmaster-system:harbourmaster-webhook"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
OPT_IN = "keptn.sh/lifecycle-toolkit"
LABEL = "gates.harbourmaster.dev/enabled"
RELOAD_ERRORS = "harbourmaster_certificate_reload_errors_total "
AFTERWARDS = 20
POD = workload("Pod", {"app": "web"})
SELECTOR = {"example.com/pool": "web"}
FLAGS = {
    "controller": [
        "--webhook-failure-policy=Fail",
        "--certificates-publish-seconds=1",
    ]
}


@pytest.fixture(scope="module")
def harbour(request, tmp_path_factory):
    with proxied_installation(request, tmp_path_factory, arguments=FLAGS) as installed:
        policy = cluster_policy("pool", pods={"app": "web"}, nodeSelector=SELECTOR)
        installed.stored.put(f"{POLICIES}/clusterpodschedulingpolicies/pool", policy)
        installed.stored.put("/api/v1/namespaces/home", namespace("home"))
        yield installed


@pytest.fixture
def pods(harbour):
    """Pods that are tried all the time through the API server, each as it should be."""

    def ask():
        return harbour.stored.tried_pod("home", POD)

    until(ask, equals(SELECTOR))
    until(lambda: is_sound(harbour.stored))
    with Steady(ask) as steady:
        yield steady
        # What was healed just now is in use for a while.
        until(lambda: steady.answered > AFTERWARDS + len(steady.failures))
    assert steady.failures == []
    note(pods=steady.answered, slowest=steady.slowest)


def is_sound(stored):
    """Whether the Secret holds a whole pair and key, which every configuration trusts."""
    secret = stored.find(SECRET)
    hooks = [stored.find(path) for path in (MUTATING, VALIDATING)]
    if secret is None or not all(hooks):
        return False
    leaf = served_leaf(secret, [NAME])
    return (
        leaf is not None
        and set(data_of(secret)) == set(KEYS)
        and leaf.not_after > datetime.now(UTC)
        and all(trusts(bundle, leaf.serving_der) for hook in hooks for bundle in bundles_of(hook))
    )


def is_served(harbour):
    """Whether the webhook serves what the Secret holds."""
    leaf = served_leaf(harbour.stored.find(SECRET))
    return leaf is not None and served_certificate(harbour) == leaf.serving_der


def served_certificate(harbour):
    """The certificate that the webhook serves, checked as the API server does."""

    def authority():
        return bundles_of(harbour.stored.find(MUTATING))[0].decode()

    return Reviews(harbour.installation.webhooks[0], authority).certificate()


def expired_files():
    """The four files of a year that is over."""
    then = datetime.now(UTC) - timedelta(days=400)
    year = timedelta(days=365)
    authority = foreign_authority(then, lifetime=year)
    leaf = foreign_leaf(then, authority, [NAME], lifetime=year)
    return dict(zip(KEYS, map(pem, (*authority, *leaf)), strict=True))


EDITS = {
    **{f"garbage in {key}": lambda key=key: {key: b"garbage"} for key in KEYS},
    "half of tls.crt": lambda: {"tls.crt": b"-----BEGIN CERTIFICATE-----\nMIIB"},
    "garbage everywhere": lambda: dict.fromkeys(KEYS, b"garbage"),
    "a year that is over": expired_files,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_secret_edited_by_hand_heals_and_no_pod_is_refused(harbour, pods, edit):
    changes = edit()

    def write(secret):
        for key, value in changes.items():
            secret["data"][key] = base64.b64encode(value).decode()

    harbour.stored.edit(SECRET, write)
    _, seconds = until(lambda: is_sound(harbour.stored) and is_served(harbour))
    note(healed=seconds)


def test_a_deleted_secret_comes_back_and_no_pod_is_refused(harbour, pods):
    harbour.stored.remove(SECRET)
    _, seconds = until(lambda: is_sound(harbour.stored) and is_served(harbour))
    note(healed=seconds)


MOUNTS = {
    "nothing": lambda _: {},
    "half of a key": lambda files: {**files, "tls.key": files["tls.key"][:60]},
    "no key": lambda files: {key: files[key] for key in ("ca.crt", "tls.crt")},
    "a year that is over": lambda files: {key: expired_files()[key] for key in files},
}


@pytest.mark.parametrize("spoil", MOUNTS.values(), ids=MOUNTS)
def test_with_a_bad_pair_in_the_mount_the_last_one_is_served_and_says_so(harbour, pods, spoil):
    folder = harbour.installation.webhooks[0].certificates
    good = {name: (folder / name).read_bytes() for name in CERTIFICATE_KEYS}
    before = served_certificate(harbour), harbour.metric("webhook", RELOAD_ERRORS)
    logged = harbour.log_size("webhook")
    publish(folder, spoil(good))
    try:
        until(lambda: harbour.metric("webhook", RELOAD_ERRORS) > before[1])
        assert served_certificate(harbour) == before[0]
        assert harbour.health("webhook", "readyz") == (200, "ok\n")
        (line,) = [it for it in harbour.log("webhook", logged) if it["level"] == "error"]
        assert line["error"].endswith("; the previous certificate is still served")
    finally:
        publish(folder, good)


@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_a_deleted_configuration_is_back_within_five_seconds(harbour, path):
    until(lambda: is_sound(harbour.stored))
    before = harbour.stored.find(path)["webhooks"]
    harbour.stored.remove(path)
    _, seconds = until(lambda: (harbour.stored.find(path) or {}).get("webhooks"), equals(before))
    note(restored=seconds)
    assert seconds < 5


LEASES = {
    "emptied": lambda lease: lease.update(spec={}),
    "given to a stranger": lambda lease: lease["spec"].update(holderIdentity="stranger"),
    "longer than a day": lambda lease: lease["spec"].update(leaseDurationSeconds=100_000),
    "deleted": None,
}


@pytest.mark.parametrize("edit", LEASES.values(), ids=LEASES)
def test_a_lease_changed_by_hand_ends_no_work_for_good(harbour, edit):
    until(harbour.leader)
    if edit is None:
        harbour.stored.remove(LEASE_PATH)
    else:
        harbour.stored.edit(LEASE_PATH, edit)

    def is_ours():
        spec = (harbour.stored.find(LEASE_PATH) or {}).get("spec", {})
        holder = spec.get("holderIdentity", "")
        is_whole = spec.get("leaseDurationSeconds") == LEASE.lease_duration
        return is_whole and holder.startswith("harbourmaster-controller_")

    _, seconds = until(is_ours)
    note(held_again=seconds)
    metadata = harbour.stored.find("/api/v1/namespaces/home")["metadata"]
    value = None if OPT_IN in metadata.get("annotations", {}) else "enabled"
    harbour.stored.mark("/api/v1/namespaces/home", OPT_IN, value)

    def label():
        return LABEL in harbour.stored.find("/api/v1/namespaces/home")["metadata"]["labels"]

    until(label, equals(value is not None))


def test_without_the_right_to_list_it_says_so_and_is_ready_soon_after(harbour):
    stored = harbour.stored
    path = f"{BINDINGS}/harbourmaster-webhook"
    binding = stored.find(path)
    harbour.installation.end("webhook")
    stored.remove(path)
    until(lambda: may_list(stored), equals(False))
    harbour.installation.launch("webhook")
    try:
        resources = ("namespaces", "podschedulingpolicies", "clusterpodschedulingpolicies")
        wanted = [f'User "{ACCOUNT}" cannot list resource "{name}" in' for name in resources]
        status, text = until(
            lambda: harbour.health("webhook", "readyz"),
            lambda answer: all(text in answer[1] for text in wanted),
        )[0]
        assert status == 503
        assert len(text.splitlines()) == len({line.partition(":")[0] for line in text.splitlines()})
    finally:
        stored.put(path, {**binding, "metadata": {"name": "harbourmaster-webhook"}})
    _, seconds = until(lambda: harbour.health("webhook", "readyz")[0], equals(200))
    note(ready_again=seconds)
    until(lambda: stored.tried_pod("home", POD), equals(SELECTOR))


def may_list(stored):
    attributes = {"verb": "list", "resource": "namespaces"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return stored.ask("POST", path, review)["status"]["allowed"]
