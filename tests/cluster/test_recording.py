"""A server's recording of a real API server's reviews is answered again, byte by byte."""

from __future__ import annotations

import json

import pytest

from harbourmaster.cli.main import main
from helpers.admission import CANARY
from helpers.cluster import (
    create,
    eventually,
    keep_registered,
    pod_spec,
    selecting,
    webhook_configuration,
    workloads,
)
from helpers.objects import RESOURCES, cluster_policy
from helpers.server import Server

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

POLICY = cluster_policy(nodeSelector={"example.com/disk": "ssd"})
VARIABLES = [{"name": "TOKEN", "value": CANARY}]


def with_secrets(text):
    listed = json.loads(text)
    for item in listed["items"]:
        pod_spec(item)["containers"][0]["env"] = VARIABLES
    return json.dumps(listed)


def lines_in(folder):
    return [line for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()]


def test_what_a_real_api_server_asked_is_answered_again(kubectl, namespace, tmp_path, capsysbinary):
    folder = tmp_path / "records"
    options = (f"--record={folder}", "--record-sample=1")
    with Server(tmp_path / "server", *options, policies=[POLICY]) as own:
        configuration = webhook_configuration(
            "Mutating",
            own.url,
            own.bundle,
            name="harbourmaster-recorded",
            namespaceSelector=selecting(namespace),
        )
        manifest = with_secrets(workloads(namespace))
        with keep_registered(kubectl, configuration):
            made = eventually(
                lambda: create(kubectl, *json.loads(manifest)["items"], is_tried=True),
                is_right=lambda value: all("nodeSelector" in pod_spec(obj) for obj in value),
            )
            # Applied, it carries what was applied, secrets and all, in an annotation.
            kubectl("apply", "-f=-", stdin=manifest)
            lines = eventually(
                lambda: lines_in(folder),
                is_right=lambda value: (
                    {
                        json.loads(line)["review"]["request"]["kind"]["kind"]
                        for line in value
                        if b"last-applied-configuration" in line
                    }
                    >= RESOURCES.keys()
                ),
            )
    assert [obj["kind"] for obj in made] == list(RESOURCES)
    assert not [line for line in lines if CANARY.encode() in line]
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"\n".join(lines))
    assert main(["replay", "--check", str(copy)]) == 0
    assert capsysbinary.readouterr().out == b""
    assert [line for line in lines if b'"patch"' in line]
