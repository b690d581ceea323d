"""S25, S31 on a real server: recordings have no secret, and only their owner can read them."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.cli.offline import replay_case
from helpers.admission import CANARY, asked_by, secret_annotations, secretive
from helpers.certificates import strict_client
from helpers.objects import body, cluster_policy, review, workload
from helpers.patience import PATIENCE
from helpers.raw_http import post
from helpers.server import WatchedServer

POLICY = cluster_policy(nodeSelector={"disk": "ssd"})
WRITTEN = 'harbourmaster_recorded_reviews_total{outcome="written"}'
KINDS = ("Pod", "Deployment", "DaemonSet", "CronJob")


def secret_of(kind):
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "credentials", "annotations": secret_annotations()},
        "data": {"password": CANARY},
    }


def pod():
    manifest = workload("Pod")
    manifest["metadata"]["annotations"] = secret_annotations()
    manifest["spec"] = secretive(manifest["spec"])
    return manifest


@pytest.fixture
def recording(tmp_path):
    options = ("--log-level=debug", f"--record={tmp_path / 'records'}", "--record-sample=1")
    with WatchedServer(tmp_path / "server", POLICY, options=options) as server:
        yield server


async def until_written(server, count):
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(server.metric, WRITTEN) < count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


@pytest.mark.claim("K1")
async def test_no_secret_reaches_a_recording_or_the_log_and_every_answer_is_given_again(
    recording, tmp_path
):
    tls = strict_client(recording.bundle)
    documents = [pod(), *map(secret_of, ("Secret", "ConfigMap"))]
    documents += [workload(kind, **secretive({})) for kind in KINDS]
    answers = {}
    for number, document in enumerate(documents):
        data = body(document, uid=f"uid-{number}", **asked_by())
        assert CANARY.encode() in data
        answer = await recording.ask(post(data, path="/mutate"), tls)
        answers[f"uid-{number}"] = answer.body.partition(b'"response":')[2][:-1]
    await recording.ask(post(b'{"secret": "' + CANARY.encode() + b'"', path="/mutate"), tls)
    await until_written(recording, len(documents))

    folder = tmp_path / "records"
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_bytes()
    assert CANARY.encode() not in text
    lines = text.splitlines()
    assert {json.loads(line)["id"] for line in lines} == answers.keys()
    for line in lines:
        case = replay_case(line)
        assert bytes(case.response) == answers[case.id]
    assert CANARY not in "".join(recording.lines)
    assert CANARY not in await asyncio.to_thread(recording.get, "/metrics")


async def test_what_is_recorded_last_is_written_when_the_server_ends(recording, tmp_path):
    tls = strict_client(recording.bundle)
    for number in range(30):
        data = json.dumps(review(workload(), uid=f"uid-{number}")).encode()
        await recording.ask(post(data, path="/mutate"), tls)
    await asyncio.to_thread(recording.stop)
    (file,) = (tmp_path / "records").iterdir()
    assert len(file.read_bytes().splitlines()) == 30
