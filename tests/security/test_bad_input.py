"""Bad input to a real server: its answer, and that other clients notice nothing."""

from __future__ import annotations

import asyncio
import json
import random
import time

import pytest
import trustme

from harbourmaster.webhook.review import MAX_BODY_BYTES as LIMIT
from helpers.certificates import strict_client, with_certificate
from helpers.objects import body, review, workload
from helpers.oracles import NODE_REQUIRED, apply_patch, decode_patch
from helpers.raw_http import Connection, post
from helpers.server import POLICIES, Bystander, WatchedServer

DEEP = 100_000
HALF_HELLO = bytes.fromhex("160301020001")
CALLER = "kube-apiserver"


def mutate(payload, *headers, **options):
    return post(payload, *headers, path="/mutate", **options)


def response_of(answer):
    assert answer.status == 200
    return json.loads(answer.body)["response"]


def is_malformed(answer, says):
    """An answer to what is no review: HTTP 200, and in it 400."""
    response = response_of(answer)
    assert (response["uid"], response["allowed"]) == ("", False)
    assert response["status"]["code"] == 400
    assert says in response["status"]["message"]
    return True


def is_skipped(answer, code, says):
    """Allowed as it is, with a warning and an audit annotation."""
    response = response_of(answer)
    assert (response["uid"], response["allowed"]) == ("uid-1", True)
    assert "patch" not in response
    assert says in response["warnings"][0]
    assert says in response["auditAnnotations"][code]
    return True


def large_pod():
    """A pod of 3 MiB with 1,000 containers."""
    document = workload("Pod")
    env = [{"name": f"SETTING_{index}", "value": "x" * 60} for index in range(32)]
    document["spec"]["containers"] = [
        {"name": f"c{index}", "image": "registry.example.com/app:1", "env": env}
        for index in range(1000)
    ]
    assert 2.9 < len(json.dumps(document)) / 1024 / 1024 < 3.1
    return document


def with_raw(field, raw):
    """A review whose pod has this text as the value of a field of its spec."""
    return body(workload("Pod", **{field: "@"})).replace(b'"@"', raw)


async def test_no_body(ask, assert_harmless):
    bad = mutate(b"")
    assert is_malformed(await ask(bad), "truncated")
    await assert_harmless(bad)


async def test_a_body_of_8_mib_is_accepted(ask, assert_harmless):
    largest = mutate(body(workload()).ljust(LIMIT))
    assert "patch" in response_of(await ask(largest))
    await assert_harmless(largest, pause=0.05)


async def test_one_byte_more_is_refused_before_the_body_is_read(ask, assert_harmless):
    # Of the body nothing is sent, so nothing can have been read.
    assert (await ask(mutate(b"", length=LIMIT + 1))).status == 413
    await assert_harmless(mutate(b"x" * 65536, length=LIMIT + 1))


async def test_truncated_json(ask, assert_harmless):
    bad = mutate(body(workload())[:-40])
    assert is_malformed(await ask(bad), "truncated")
    await assert_harmless(bad)


DEEP_ARRAY = b"[" * DEEP + b"]" * DEEP
DEEP_OBJECT = b'{"a":' * DEEP + b"1" + b"}" * DEEP


@pytest.mark.parametrize("deep", [DEEP_ARRAY, DEEP_OBJECT], ids=["arrays", "objects"])
@pytest.mark.parametrize(
    "place",
    [
        lambda deep: b'{"x":' + deep + b"}",
        lambda deep: b'{"request":' + deep + b"}",
        lambda deep: with_raw("volumes", deep),
        lambda deep: with_raw("affinity", deep),
        lambda deep: with_raw("tolerations", b"[" + deep + b"]"),
        lambda deep: with_raw("nodeSelector", b'{"a":' + deep + b"}"),
        lambda deep: with_raw("schedulingGates", b"[" + deep + b"]"),
    ],
    ids=["envelope", "request", "object", "affinity", "tolerations", "nodeSelector", "gates"],
)
@pytest.mark.claim("W4")
async def test_nesting_of_100_000_levels(ask, deep, place):
    response = response_of(await ask(mutate(place(deep))))
    assert "patch" not in response
    assert response["status"].get("message") or response["warnings"]


async def test_nesting_leaves_others_served(assert_harmless):
    await assert_harmless(
        mutate(b'{"request":' + DEEP_OBJECT + b"}"),
        mutate(with_raw("volumes", DEEP_ARRAY)),
        mutate(with_raw("affinity", DEEP_OBJECT)),
    )


async def test_duplicate_keys_take_the_last_value(ask, assert_harmless):
    whole = body(workload("Pod", tolerations=[]), uid="first")
    bad = whole.replace(b'"uid": "first"', b'"uid": "first", "uid": "uid-1"').replace(
        b'"tolerations": []', b'"tolerations": "x", "tolerations": []'
    )
    response = response_of(await ask(mutate(bad)))
    assert response["uid"] == "uid-1"
    paths = [operation["path"] for operation in decode_patch(response)]
    assert "/spec/tolerations/-" in paths
    await assert_harmless(mutate(bad))


async def test_a_pod_of_3_mib_with_1_000_containers_is_changed_correctly(ask, assert_harmless):
    document = large_pod()
    request = mutate(body(document))
    response = response_of(await ask(request))
    after = apply_patch(document, response)["spec"]
    assert after.pop("nodeSelector") == {"disk": "ssd"}
    assert after.pop("tolerations") == [{"key": "pool", "operator": "Exists"}]
    assert len(after.pop("affinity")["nodeAffinity"][NODE_REQUIRED]["nodeSelectorTerms"]) == 2
    assert after == document["spec"]
    await assert_harmless(request)


async def test_text_that_is_not_utf_8(ask, assert_harmless):
    in_uid = mutate(body(workload()).replace(b"uid-1", b"\xff"))
    in_label = mutate(body(workload(labels={"app": "@"})).replace(b'"@"', b'"\xff"'))
    assert is_malformed(await ask(in_uid), "utf-8")
    assert is_skipped(await ask(in_label), "object-malformed", "utf-8")
    await assert_harmless(in_uid, in_label, mutate(b"\xff\xfe" + bytes(10_000)))


async def test_another_content_type_leaves_others_served(assert_harmless):
    await assert_harmless(mutate(body(workload()), "Content-Type: text/plain"))


async def test_a_review_without_a_request(ask, assert_harmless):
    bad = mutate(
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode()
    )
    response = response_of(await ask(bad))
    assert (response["uid"], response["allowed"]) == ("", True)
    assert "not handled" in response["status"]["reason"]
    await assert_harmless(bad)


async def test_a_kind_that_is_not_known(ask, assert_harmless):
    question = review(workload())
    question["request"]["kind"] = {"group": "", "version": "v1", "kind": "ConfigMap"}
    bad = mutate(json.dumps(question).encode())
    assert is_skipped(await ask(bad), "kind-unknown", "v1, Kind=ConfigMap")
    await assert_harmless(bad)


WRONG = {
    "affinity": ["x", 3, [], True, {"nodeAffinity": "x"}, {"nodeAffinity": {NODE_REQUIRED: []}}],
    "nodeName": [3, [], {}, True],
    "nodeSelector": ["x", 3, [], {"a": 3}, {"a": None}, {"a": {}}],
    "schedulerName": [3, [], {}, False],
    "tolerations": ["x", 3, {}, ["x"], [None], [{"key": 3}], [{"tolerationSeconds": "x"}]],
}
WRONG_TYPES = [(field, value) for field, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("field", "value"), WRONG_TYPES)
async def test_a_wrong_type_in_an_owned_field(ask, field, value):
    bad = mutate(body(workload("Pod", **{field: value})))
    assert is_skipped(await ask(bad), "object-malformed", f"spec.{field}")


async def test_wrong_types_leave_others_served(assert_harmless):
    await assert_harmless(
        *(mutate(body(workload("Pod", **{field: value}))) for field, value in WRONG_TYPES)
    )


def pod_of_crowd(index):
    """Return a pod that all policies of the crowd select; different pods have no cached answer."""
    return workload("Pod", {"app": "crowd"}, nodeSelector={"number": str(index)})


async def test_20_policies_of_3_terms_each_on_one_pod(ask, assert_harmless):
    document = pod_of_crowd(0)
    response = response_of(await ask(mutate(body(document))))
    assert response["allowed"] is True
    assert "affinity-too-large" in response["auditAnnotations"]
    after = apply_patch(document, response)["spec"]["affinity"]["nodeAffinity"][NODE_REQUIRED]
    # All 20 would have made 2 times 3 to the power of 20 terms.
    assert 3 < len(after["nodeSelectorTerms"]) < 10_000
    await assert_harmless(*(mutate(body(pod_of_crowd(index))) for index in range(1, 500)))


@pytest.mark.full
@pytest.mark.parametrize("document", [large_pod(), pod_of_crowd(0)], ids=["large", "pod_of_crowd"])
async def test_much_to_do_is_done_within_a_second(ask, document):
    request = mutate(body(document))
    begun = time.perf_counter()
    response_of(await ask(request))
    assert time.perf_counter() - begun < 1


async def test_clients_that_send_one_byte_a_second_leave_others_served(server, trusting, bystander):
    memory = server.memory()
    wires = [await Connection.open(server, trusting) for _ in range(100)]
    for wire in wires:
        wire.send(mutate(b"", length=1000))

    async def drip():
        while True:
            for wire in wires:
                wire.send(b" ")
                await asyncio.sleep(1 / len(wires))

    dripping = asyncio.create_task(drip())
    await bystander.assert_served(memory)
    dripping.cancel()
    await asyncio.gather(*(wire.drop() for wire in wires))


async def test_900_idle_connections_leave_others_served(server, trusting, bystander, many_files):
    memory = server.memory()
    wires = [await Connection.open(server, trusting) for _ in range(900)]
    assert server.metric("harbourmaster_connections") >= 900
    # 64 KiB each: most of it is OpenSSL's.
    await bystander.assert_served(memory + 900 * 65536)
    await asyncio.gather(*(wire.drop() for wire in wires))


RANDOM = random.Random(1).randbytes(4096)  # noqa: S311
GARBAGE = {
    "random bytes": RANDOM,
    "plain HTTP": b"GET /mutate HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a record of another protocol": b"\x16\x03\x01\xff\xff" + RANDOM,
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_on_the_tls_port_ends_the_connection(server, name):
    wire = await Connection.open(server)
    wire.send(GARBAGE[name])
    # At most an alert comes back, never anything that could be taken for an answer.
    assert len(await wire.rest()) <= 7
    await wire.drop()


async def test_garbage_on_the_tls_port_leaves_others_served(assert_harmless):
    await assert_harmless(*GARBAGE.values(), tls=False)


async def test_half_a_client_hello_leaves_others_served(server, bystander):
    memory = server.memory()
    wires = [await Connection.open(server) for _ in range(100)]
    for wire in wires:
        wire.send(HALF_HELLO)
    await bystander.assert_served(memory)
    await asyncio.gather(*(wire.drop() for wire in wires))


@pytest.fixture(scope="module")
def callers():
    """The authority that signs clients."""
    return trustme.CA()


@pytest.fixture(scope="module")
def mtls_server(tmp_path_factory, callers):
    """A server that wants to know its clients."""
    folder = tmp_path_factory.mktemp("mtls_server")
    authority = folder / "callers.crt"
    authority.write_bytes(callers.cert_pem.bytes())
    options = (f"--client-ca={authority}", f"--client-cn={CALLER}")
    with WatchedServer(folder / "server", *POLICIES, options=options) as server:
        yield server


@pytest.fixture
def caller(mtls_server, callers, tmp_path):
    """Make a client with a certificate: ``caller(name, authority)``."""

    def make(name=CALLER, authority=callers):
        pair = authority.issue_cert("client.example", common_name=name)
        context = strict_client(mtls_server.bundle)
        return with_certificate(context, pair.private_key_and_cert_chain_pem.bytes(), tmp_path)

    return make


async def test_clients_without_the_certificate_leave_others_served(mtls_server, caller, attacking):
    memory = mtls_server.memory()
    wire = await Connection.open(mtls_server, caller())
    with attacking(mtls_server, mutate(body(workload()))):
        await Bystander(mtls_server, wire).assert_served(memory)
    await wire.drop()
