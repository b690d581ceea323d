"""S39: mutated requests, reviews and policies; nothing crashes, and every answer makes sense.

3,000 in the usual run, a million with ``make fuzz``. Each run takes the same ones: a failure comes
again, and shows what caused it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import re
from pathlib import Path

import jsonpatch
import pytest

from harbourmaster.policies.index import policy_set
from harbourmaster.serving.http_connection import Timeouts
from harbourmaster.serving.site import Site
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.admission import Admission, policy_engine
from helpers.objects import cluster_policy, policy, required, review, workload
from helpers.oracles import decode_patch
from helpers.patience import PATIENCE
from helpers.properties import cases
from helpers.raw_http import Connection, post

CASES = int(os.environ.get("HARBOURMASTER_FUZZ_REQUESTS", cases(3000, least=600)))
BODIES = CASES // 2
REQUESTS = CASES // 2
POLICIES = CASES // 3
AT_ONCE = 50

CORPUS = [
    json.dumps(json.loads(path.read_text())).encode()
    for path in sorted((Path(__file__).parents[2] / "fixtures").glob("*.json"))
]
FIELDS = {"affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations"}
POINTER = re.compile(r"/spec(?:/template/spec|/jobTemplate/spec/template/spec)?")
OWNED = re.compile(rf"{POINTER.pattern}/(?:{'|'.join(FIELDS)})(?:/|$)")
NAMES = (
    *("", "/", "~", "~1", "..", "-", "0", "spec", "containers", "securityContext", "hostPath"),
    *("key", "operator", "values", "matchLabels", "matchExpressions", "matchFields", "weight"),
    *("nodeSelectorTerms", "topologyKey", "labelSelector", "namespaceSelector", "affinity"),
    *("a" * 300, "\u2028", "\x1b[2J", "__proto__", "node.kubernetes.io/x"),
)
"""Names that mean something, or that mean harm."""
TEXTS = (*NAMES, "In", "NotIn", "Exists", "Gt", "NoExecute", "x", "1", "pool")
NUMBERS = (0, -1, 1, 101, 2**31, 2**63, 2**64, 10**30, 0.5, -1e300)
FULL = cluster_policy(
    nodeName="n1",
    nodeSelector={"disk": "ssd", "example.com/a": "b"},
    schedulerName="ours",
    tolerations=[{"key": "pool", "operator": "Equal", "value": "x", "effect": "NoExecute"}],
    affinity={
        **required({"pool": "etcd"}, {"pool": "db", "zone": "a"}),
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "host", "namespaces": ["x"]}}
            ],
        },
    },
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 if CASES <= 3000 else 0)]


def mangle(data, rng):
    """Return a body with a few bytes changed."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.randint(1, 30))
        match rng.randrange(5):
            case 0:
                data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
            case 1:
                data = data[:at] + data[to:]
            case 2:
                data = data[:to] + data[at:]
            case 3:
                second = rng.choice(CORPUS)
                data = data[:at] + second[rng.randrange(len(second)) :]
            case _:
                data = data[:at]
    return data


def random_json(rng, depth=0):
    """Return any JSON value."""
    match rng.randrange(6 if depth < 4 else 4):
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.choice(NUMBERS)
        case 2 | 3:
            return rng.choice(TEXTS)
        case 4:
            return [random_json(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice(NAMES): random_json(rng, depth + 1) for _ in range(rng.randrange(4))}


def places(value):
    """Yield each object and array within a value with each of its keys."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield value, key
            yield from places(child)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield value, index
            yield from places(child)


def change(value, rng):
    """Take away, add, repeat or replace something at any depth of an object."""
    changeable = list(places(value))
    if not changeable:
        return
    within, key = rng.choice(changeable)
    match rng.randrange(4):
        case 0:
            del within[key]
        case 1 if isinstance(within, dict):
            within[rng.choice(NAMES)] = random_json(rng)
        case 1 | 2 if isinstance(within, list):
            within.append(copy.deepcopy(within[key]))
        case 2 if isinstance(within[key], str):
            within[key] = rng.choice(TEXTS)
        case _:
            within[key] = random_json(rng)


def mangled_review(rng):
    """A review that may still be one: half of them are changed as JSON, half as bytes."""
    data = rng.choice(CORPUS)
    if rng.random() < 0.5:
        return mangle(data, rng)
    question = json.loads(data)
    for _ in range(rng.randint(1, 4)):
        change(question, rng)
    return json.dumps(question).encode()


def parse(data):
    """Return the value that an independent parser reads, or None if it fails."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def uid_of(question):
    """Return the uid that the answer must carry, or None if the review has no readable uid."""
    request = question.get("request") if isinstance(question, dict) else None
    uid = request.get("uid", "") if isinstance(request, dict) else None
    return uid if isinstance(uid, str) else None


def is_owned(operation):
    """Whether an operation adds to the owned fields, or makes a spec of nothing else."""
    if operation["op"] != "add":
        return False
    if POINTER.fullmatch(operation["path"]):
        return operation["value"].keys() <= FIELDS
    return OWNED.match(operation["path"]) is not None


def check(question, result):
    """An answer is an AdmissionReview that fits the question."""
    admission_review = json.loads(result)
    assert admission_review["kind"] == "AdmissionReview"
    assert admission_review["apiVersion"] in {"admission.k8s.io/v1", "admission.k8s.io/v1beta1"}
    response = admission_review["response"]
    assert isinstance(response["allowed"], bool)
    code = response["status"]["code"]
    assert code in ({200} if response["allowed"] else {400, 403})
    operations = decode_patch(response)
    assert response["allowed"] or not operations
    assert all(map(is_owned, operations))
    if question is not None and code != 400:
        uid = uid_of(question)
        assert response["uid"] == ("" if uid is None else uid)
        if operations:
            jsonpatch.apply_patch(question["request"]["object"], operations)
    return response


@pytest.mark.claim("W8")
def test_s39_a_mangled_review_always_gets_an_answer():
    rng = random.Random(39)  # noqa: S311
    decides = policy_engine(FULL, policy(namespace="demo", nodeSelector={"a": "b"}))
    understood = 0
    for _ in range(BODIES):
        data = mangled_review(rng)
        result, decision = answer(data, decides)
        assert decision.verdict.outcome in OUTCOMES
        understood += check(parse(data), result)["status"]["code"] == 200
    # Both sides of the parser are reached.
    assert BODIES / 10 < understood < BODIES * 9 / 10


def random_policy(rng):
    """A full policy of either kind with something changed in it."""
    random_document = copy.deepcopy(FULL)
    if rng.random() < 0.3:
        random_document["kind"] = "PodSchedulingPolicy"
        random_document["metadata"]["namespace"] = "ns1"
        del random_document["spec"]["namespaceSelector"]
    for _ in range(rng.randint(1, 4)):
        change(random_document["spec"], rng)
    if rng.random() < 0.05:
        random_document["spec"] = random_json(rng)
    return random_document


PODS = [
    workload("Pod"),
    workload("Pod", schedulingGates=[{"name": "example.com/gate"}]),
    workload(nodeSelector={"disk": "hdd"}, tolerations=[{"operator": "Exists"}]),
    workload("CronJob", affinity=required({"pool": "etcd"}, {"zone": "b"})),
]


@pytest.mark.parametrize("conflict", ["and", "skip"])
def test_s14_s39_a_random_policy_never_breaks_an_answer_nor_leaves_its_fields(conflict):
    rng = random.Random(14)  # noqa: S311
    settings = AdmissionSettings(on_required_affinity_conflict=conflict)
    patches = 0
    for number in range(POLICIES // 2):
        asked = random_policy(rng)
        compiled, problems = read_policy(asked)
        assert all(isinstance(problem, str) for problem in problems)
        sound, _ = read_policy(policy("sound", nodeSelector={"sound": str(number)}))
        decides = Engine(Snapshot(policy_set([compiled, sound])), settings)
        for document in PODS:
            question = review(document)
            result, _ = answer(json.dumps(question).encode(), decides)
            operations = decode_patch(check(question, result))
            # Whatever came of the one policy, the other is in force.
            assert any(str(number) in json.dumps(operation["value"]) for operation in operations)
            patches += len(operations) > 1
        # The same policy comes for validation.
        question = review(asked)
        check(question, answer(json.dumps(question).encode(), decides)[0])
    # Enough of them are sound, so that there is something to find.
    assert patches > POLICIES / 10


def requests():
    """Good requests of every form that the server takes."""
    headers = "Content-Type: application/json"
    good = [post(body, path=path) for body in CORPUS for path in ("/mutate?timeout=3s", "/webhook")]
    small = min(CORPUS, key=len)
    chunked = post(b"", headers, "Transfer-Encoding: chunked", path="/mutate").replace(
        b"Content-Length: 0\r\n", b""
    )
    good += [chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(small), small)] * 10
    good += [post(small, headers, "Expect: 100-continue", path="/validate")] * 5
    good += [post(small, path="/mutate").replace(b"HTTP/1.1", b"HTTP/1.0")] * 5
    good += [post(small, path="/mutate") * 2, b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n"] * 5
    return good


def mangled_request(data, rng):
    """Return a request changed mostly in its head: other tests change bodies, and faster."""
    head, separator, rest = data.partition(b"\r\n\r\n")
    if rng.random() < 0.2:
        return head + separator + mangle(rest or b" ", rng)
    return mangle(head + separator, rng) + rest


async def statuses_of(site, data):
    """Return the statuses of all answers up to the first final one, or to the closing."""
    wire = await Connection.open_with(site, data)
    received = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while not re.search(rb"HTTP/1\.[01] [2-5]\d\d [^\r]*\r\n", received):
                more = await wire.reader.read(65536)
                if not more:
                    break
                received += more
    except ConnectionError:
        pass
    finally:
        await wire.drop()
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", received)]


async def test_s39_a_mangled_request_never_fails_the_server(log):
    admission = Admission(log, policy_engine(FULL), body_timeout_seconds=0.1)
    loop = asyncio.get_running_loop()
    faults = []
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    # Short, for many of these requests never end.
    timeouts = Timeouts(head=0.1, first_request=0.1, keepalive=0.2, linger=0.1)
    site = Site(admission.app, host="127.0.0.1", port=0, timeouts=timeouts)
    await site.start()
    good = requests()
    statuses = []

    async def attack(seed):
        # Each has its own, for which of them goes on first differs.
        rng = random.Random(seed)  # noqa: S311
        for _ in range(REQUESTS // AT_ONCE):
            data = mangled_request(rng.choice(good), rng)
            statuses_of_request = await statuses_of(site, data)
            assert all(status < 500 for status in statuses_of_request), data
            statuses.extend(statuses_of_request)

    await asyncio.gather(*(attack(seed) for seed in range(AT_ONCE)))
    for request in good:
        assert (await statuses_of(site, request))[-1] in {200, 405}
    async with asyncio.timeout(PATIENCE):
        await site.wait_until_unused()
    await site.stop()
    assert faults == []
    assert [line for line in admission.lines() if "exception" in line] == []
    limits = admission.limits
    assert (limits.requests_in_flight, limits.bytes_in_flight) == (0, 0)
    assert {200, 400, 404, 405, 408, 415} <= set(statuses)
