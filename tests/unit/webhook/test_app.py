"""The HTTP face of admission: the real handler on a real site, in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from functools import partial

import pytest
import trustme

from harbourmaster.certs.reload import CertificateHolder, TlsOptions
from harbourmaster.certs.store import ensure
from harbourmaster.serving.bodies import read_body
from harbourmaster.webhook import review
from harbourmaster.webhook.handlers import answer_body, is_lengthy
from harbourmaster.webhook.review import MAX_BODY_BYTES, ReviewBody
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.admission import Admission, policy_engine
from helpers.certificates import strict_client, with_certificate
from helpers.objects import body, cluster_policy, workload
from helpers.oracles import decode_patch
from helpers.patience import PATIENCE
from helpers.raw_http import post, post_chunked

POLICY = cluster_policy(pods={"app": "web"}, nodeSelector={"disk": "ssd"})
CALLER = "kube-apiserver"


@pytest.fixture
async def make(log):
    """Return a function that makes an Admission with one policy."""
    return partial(Admission, log, policy_engine(POLICY))


@pytest.fixture
async def admission(make):
    """An Admission with the usual settings."""
    return make()


def mutate(document=None, *headers, path="/mutate", **options):
    return post(body(document or workload(), **options), *headers, path=path)


def response_of(answer):
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body)["response"]


@pytest.mark.parametrize("path", ["/mutate", "/webhook", "/mutate-v1-pod"])
async def test_a_review_is_answered_on_our_path_on_kupid_s_and_on_keptn_s(admission, path):
    response = response_of(await admission.ask(mutate(path=path, uid="u-1")))
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    (operation,) = decode_patch(response)
    assert operation["value"] == {"disk": "ssd"}


async def test_s13_the_path_for_validation_never_patches(admission):
    response = response_of(await admission.ask(mutate(path="/validate")))
    assert response["allowed"] is True
    assert "patch" not in response
    assert "patchType" not in response


@pytest.mark.parametrize("path", ["/mutate", "/webhook", "/validate"])
async def test_policies_are_checked_on_every_path(admission, path):
    invalid = cluster_policy(nodeName="Not A Name")
    response = response_of(await admission.ask(mutate(invalid, path=path)))
    assert response["allowed"] is False
    assert response["status"]["code"] == 403


@pytest.mark.parametrize("path", ["/", "/mutate/", "/Mutate", "/mutate/x", "/healthz", "/metrics"])
async def test_s4_other_paths_are_not_found(admission, path):
    answer = await admission.ask(mutate(path=path))
    assert answer.status == 404
    assert b"/mutate" in answer.body


async def test_s5_a_body_over_the_limit_is_refused_unread(admission):
    answer = await admission.ask(post(b"", length=MAX_BODY_BYTES + 1, path="/mutate"))
    assert answer.status == 413


@pytest.mark.parametrize(
    ("asked", "body_timeout", "shorter"),
    [("200ms", 60.0, 0.2), ("30s", 0.03, 0.03), ("nonsense", 0.03, 0.03)],
)
async def test_the_shorter_of_both_time_outs_ends_the_wait_for_a_body(
    make, monkeypatch, asked, body_timeout, shorter
):
    waits = []

    async def read_with_deadline(*arguments, deadline, **options):
        waits.append(deadline - asyncio.get_running_loop().time())
        return await read_body(*arguments, deadline=deadline, **options)

    monkeypatch.setattr("harbourmaster.serving.bodies.read_body", read_with_deadline)
    admission = make(body_timeout_seconds=body_timeout)
    answer = await admission.ask(post(b"{", length=9, path=f"/mutate?timeout={asked}"))
    assert answer.status == 408
    assert waits[0] <= shorter


def in_chunks(path, **options):
    """A request of which each part may be late."""
    return post_chunked(body(workload(), **options), path=path)


async def test_a_late_review_is_allowed_unchanged_with_a_warning(admission, late):
    request = in_chunks("/mutate?timeout=20ms", uid="u-late")
    response = response_of(await admission.ask(request))
    assert (response["uid"], response["allowed"]) == ("u-late", True)
    assert "patch" not in response
    assert "time limit of this request was reached" in response["warnings"][0]
    assert "time limit of this request was reached" in response["auditAnnotations"]["deadline"]
    assert admission.value("skipped_total", reason="deadline") == 1
    assert admission.kupid() == {"processed": 1, "error": 1}
    (line,) = admission.lines()
    assert (line["level"], line["codes"]) == ("warning", ["deadline"])


async def test_a_review_is_late_by_the_api_server_s_time_only(make, late):
    admission = make(body_timeout_seconds=0.001)
    assert "patch" in response_of(await admission.ask(in_chunks("/mutate?timeout=10s")))


def with_padding(document, size):
    """Return an object after adding an annotation of this many bytes."""
    document["metadata"]["annotations"] = {"note": "x" * size}
    return document


@pytest.mark.claim("W11")
@pytest.mark.parametrize(
    ("document", "aside"),
    [
        (cluster_policy(), False),
        (with_padding(cluster_policy(), 8 * 1024), True),
        (with_padding(cluster_policy(), 80 * 1024), True),
        (with_padding(workload("Pod"), 8 * 1024), False),
        (workload("Pod", {"a": "PodSchedulingPolicy"}, x="x" * 8 * 1024), False),
    ],
    ids=["small policy", "large policy", "in parts", "large pod", "pod that names the kind"],
)
async def test_only_large_policies_are_checked_beside_other_reviews(
    admission, monkeypatch, document, aside
):
    threads = []

    def answer_in_thread(*arguments, **options):
        threads.append(threading.current_thread())
        return answer_body(*arguments, **options)

    monkeypatch.setattr("harbourmaster.webhook.server.answer_body", answer_in_thread)
    assert response_of(await admission.ask(mutate(document)))["allowed"] is True
    assert [thread is not threading.main_thread() for thread in threads] == [aside]


class CountingDecoder:
    def __init__(self, decoder):
        self._decoder = decoder
        self.calls = 0

    def decode(self, data):
        self.calls += 1
        return self._decoder.decode(data)


@pytest.mark.parametrize(
    ("data", "times"),
    [
        (body(workload()), 1),
        (body(with_padding(workload("Pod"), 8 * 1024)), 1),
        (body(workload("Pod", {"a": "PodSchedulingPolicy"}, x="x" * 8 * 1024)), 1),
        (body(cluster_policy()), 2),
        # Once before it is known that a thread checks it.
        (body(with_padding(cluster_policy(), 8 * 1024)), 3),
        (body(with_padding(cluster_policy(), 80 * 1024)), 2),
        (body(with_padding(cluster_policy(), 8 * 1024)).replace(b"Policy", b"Polic\\u007a"), 2),
        (body(with_padding(cluster_policy(), 8 * 1024))[:-1], 2),
        (body(workload(affinity=1)), 2),
        (b"{", 2),
    ],
    ids=[
        "workload",
        "large pod",
        "large pod that names the kind",
        "policy",
        "large policy",
        "large policy in parts",
        "large object of another kind",
        "large body that is not JSON",
        "malformed workload",
        "body that is not JSON",
    ],
)
async def test_a_body_is_decoded_no_more_often_than_needed(admission, monkeypatch, data, times):
    decoders = []
    for name in ("_review_decoder", "_workload_decoder"):
        decoders.append(CountingDecoder(getattr(review, name)))
        monkeypatch.setattr(review, name, decoders[-1])
    await admission.ask(post(data, path="/mutate"))
    assert sum(decoder.calls for decoder in decoders) == times


def test_a_kind_that_is_written_with_escapes_is_recognized():
    escaped = body(with_padding(cluster_policy(), 8 * 1024)).replace(b"Policy", b"Polic\\u0079")
    assert is_lengthy(ReviewBody(escaped))
    assert not is_lengthy(ReviewBody(escaped.replace(b"u0079", b"u007a")))


@pytest.mark.claim("W11")
async def test_a_large_policy_whose_turn_comes_too_late_is_not_checked(admission, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments, **options):
        begun.set()
        assert go_on.wait(PATIENCE)
        return answer_body(*arguments, **options)

    large = with_padding(cluster_policy(), 8 * 1024)
    monkeypatch.setattr("harbourmaster.webhook.server.answer_body", slow)
    async with admission.connect() as first, admission.connect() as second:
        first.send(mutate(large))
        await asyncio.to_thread(begun.wait, PATIENCE)
        second.send(mutate(large, path="/mutate?timeout=500ms"))
        async with admission.connect() as third:
            # Others are answered meanwhile.
            monkeypatch.setattr("harbourmaster.webhook.server.answer_body", answer_body)
            assert response_of(await third.ask(mutate()))["allowed"] is True
            await asyncio.sleep(0.5)
            go_on.set()
        assert "auditAnnotations" not in response_of(await first.answer())
        assert "deadline" in response_of(await second.answer())["auditAnnotations"]


REVIEWS = {
    "mutated": (workload(), {"processed": 1, "allowed": 1, "mutated": 1}),
    "unmatched": (workload(labels={"app": "db"}), {"processed": 1, "allowed": 1}),
    "unchanged": (workload(nodeSelector={"disk": "ssd"}), {"processed": 1}),
    "skipped": (workload(nodeName=3), {"processed": 1, "error": 1}),
    "valid": (POLICY, {"processed": 1, "allowed": 1}),
    "invalid": (cluster_policy(nodeName="Not A Name"), {"processed": 1, "denied": 1}),
}


@pytest.mark.parametrize("outcome", REVIEWS)
async def test_each_outcome_is_counted_ours_and_as_kupid_counts(admission, outcome):
    document, kupid = REVIEWS[outcome]
    assert admission.kupid() == {}
    await admission.ask(mutate(document))
    counts = {name: admission.value("duration_seconds_count", outcome=name) for name in OUTCOMES}
    assert counts == dict.fromkeys(OUTCOMES, 0.0) | {outcome: 1.0}
    assert admission.kupid() == kupid


async def test_a_body_that_is_no_review_is_counted_as_an_error(admission):
    await admission.ask(post(b"nonsense", path="/mutate"))
    assert admission.value("duration_seconds_count", outcome="malformed") == 1
    assert admission.kupid() == {"processed": 1, "error": 1}


async def test_refused_requests_are_no_reviews(make):
    admission = make(limits={"requests": 1, "body_bytes": 10})
    assert (await admission.ask(mutate(None, "X-None: 1"))).status == 415
    # Its unusual header leaves it to aiohttp; a plain request that is whole is not buffered.
    odd = mutate(None, "Content-Type: application/json", "X-Odd: 1")
    assert (await admission.ask(odd)).status == 429
    assert admission.kupid() == {}
    shed = admission.metrics.registry.get_sample_value
    assert shed("harbourmaster_requests_shed_total", {"reason": "bytes"}) == 1


async def test_the_size_of_patches_is_counted(admission):
    await admission.ask(mutate())
    await admission.ask(mutate(workload(labels={})))
    assert admission.value("patch_operations_count") == 1
    assert admission.value("patch_operations_sum") == 1


async def test_each_mutated_review_is_one_line_of_the_log(admission):
    async with admission.connect() as wire:
        for uid in ("u-1", "u-2"):
            await wire.ask(mutate(workload(name="ledger"), uid=uid, name="ledger"))
    first, second = admission.lines()
    assert (first["uid"], second["uid"]) == ("u-1", "u-2")
    assert first.pop("microseconds") > 0
    assert datetime.fromisoformat(first.pop("timestamp")).tzinfo is not None
    assert first == {
        "event": "mutated",
        "level": "info",
        "component": "admission",
        "uid": "u-1",
        "kind": "Deployment",
        "namespace": "ns1",
        "name": "ledger",
        "operation": "CREATE",
        "policies": ["ClusterPodSchedulingPolicy c1"],
        "operations": 1,
        "codes": [],
    }


@pytest.mark.parametrize("outcome", ["unmatched", "unchanged", "valid"])
async def test_what_is_left_alone_is_not_logged(admission, outcome):
    await admission.ask(mutate(REVIEWS[outcome][0]))
    assert admission.lines() == []


@pytest.mark.parametrize("outcome", ["skipped", "invalid"])
async def test_what_could_not_be_done_is_logged_as_a_warning(admission, outcome):
    await admission.ask(mutate(REVIEWS[outcome][0]))
    (line,) = admission.lines()
    assert (line["event"], line["level"]) == (outcome, "warning")


async def test_names_from_a_request_start_no_line_of_their_own(admission):
    await admission.ask(mutate(name='x\n{"event": "forged"}\x1b[2J\u2028', uid="u\r\n"))
    (line,) = admission.lines()
    assert line["event"] == "mutated"
    assert line["name"].isprintable()
    assert line["uid"].isprintable()


async def test_a_defect_of_ours_allows_the_object_with_a_warning(admission, broken):
    async with admission.connect() as wire:
        response = response_of(await wire.ask(mutate(uid="u-7")))
        # The connection, and the next request on it, go on.
        assert response_of(await wire.ask(mutate(uid="u-8")))["uid"] == "u-8"
    assert (response["uid"], response["allowed"]) == ("u-7", True)
    assert response["status"]["code"] == 200
    assert "internal error" in response["warnings"][0]
    assert "patch" not in response
    assert "secret" not in json.dumps(response)
    assert admission.value("skipped_total", reason="internal-error") == 2
    assert admission.kupid() == {"processed": 2, "error": 2}


async def test_a_defect_of_ours_is_logged_with_its_traceback(admission, broken):
    await admission.ask(mutate(uid="u-7"))
    lines = {line["event"]: line for line in admission.lines()}
    assert lines["review failed"]["level"] == "error"
    assert "ZeroDivisionError: secret of the object" in lines["review failed"]["exception"]
    assert lines["skipped"]["uid"] == "u-7"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return ensure(tmp_path_factory.mktemp("certs"), ("localhost",), datetime.now(UTC))


@pytest.fixture(scope="module")
def callers():
    """The authority that signs clients."""
    return trustme.CA()


@pytest.mark.parametrize(("name", "status"), [(CALLER, 200), ("somebody", 403), (None, 403)])
async def test_s1_only_the_caller_of_the_right_name_is_answered(
    make, bundle, callers, tmp_path, name, status
):
    issued = callers.issue_cert("client.example", common_name=name)
    pair = issued.private_key_and_cert_chain_pem.bytes()
    client = with_certificate(strict_client(bundle.files.ca_crt), pair, tmp_path)
    holder = CertificateHolder(bundle, TlsOptions(client_ca=callers.cert_pem.bytes()))
    admission = make(client_cn=CALLER)
    async with admission.connect(holder.context, client) as wire:
        # Of the refused body not a byte is there: the name is looked at first.
        data = mutate() if status == 200 else post(b"", length=100, path="/mutate")
        answer = await wire.ask(data)
    assert answer.status == status
    assert admission.kupid().get("processed", 0) == (status == 200)
