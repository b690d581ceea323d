"""``harbourmaster doctor`` as people run it, and the glass that it breaks."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml

from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.registration.break_glass import ANNOTATION
from helpers.cluster import eventually
from helpers.command import harbourmaster
from helpers.doctor import deployed_installation
from helpers.doctor.deployed_installation import HOME, NAME, findings_of, look, until
from helpers.flow.installation import Harbour
from helpers.patience import WAIT
from helpers.processes import client_of
from helpers.rights import kubeconfig

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


def doctor(file, *arguments):
    return harbourmaster("doctor", *arguments, kubeconfig=file)


def test_the_command_prints_a_line_for_each_check_and_the_verdict_last(deployed):
    done = doctor(deployed.plane.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, empty, verdict = done.stdout.splitlines()
    assert (empty, verdict) == ("", "Harbourmaster is healthy.")
    assert "ok        canary          a pod tried in default was answered by version" in done.stdout
    result = json.loads(doctor(deployed.plane.kubeconfig, "-o", "json").stdout)
    assert result["healthy"] is True
    assert len(lines) == sum(2 if finding["remedy"] else 1 for finding in result["findings"])


def test_without_rights_one_line_says_what_to_ask_for(deployed, tmp_path):
    kubectl = deployed.kubectl
    kubectl("create", "serviceaccount", "nobody", "--namespace=default")
    try:
        token = kubectl("create", "token", "nobody", "--namespace=default").stdout.strip()
        file = tmp_path / "nobody"
        file.write_text(kubeconfig(deployed.plane.kubeconfig, token=token))
        done = doctor(file)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(
            "harbourmaster: system:serviceaccount:default:nobody has no permission to read "
        )
        assert "ask for the permissions to get mutatingwebhookconfigurations" in line
        # Whoever may see a part is told what of it is wrong, and what was not looked at.
        kubectl(
            "create",
            "clusterrolebinding",
            "nobody",
            "--clusterrole=view",
            "--serviceaccount=default:nobody",
        )
        done = doctor(file)
        assert done.returncode == 1
        assert "unknown " in done.stdout
        assert "FAULT" not in done.stdout
        assert done.stdout.splitlines()[-1].startswith("Unknown whether Harbourmaster is")
    finally:
        kubectl("delete", "clusterrolebinding", "nobody", "--ignore-not-found")
        kubectl("delete", "serviceaccount", "nobody", "--namespace=default")


def test_without_a_cluster_one_line_says_so(deployed, tmp_path):
    config = yaml.safe_load(deployed.plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file = tmp_path / "nowhere"
    file.write_text(yaml.safe_dump(config))
    done = doctor(file)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "127.0.0.1:1" in line


def test_where_it_is_not_installed_one_line_says_where_it_is(deployed):
    done = doctor(deployed.plane.kubeconfig, "--installed-in=elsewhere")
    assert done.returncode == 1
    fault, remedy, empty, verdict = done.stdout.splitlines()
    assert fault.endswith(f"is not installed in namespace elsewhere, but in {HOME}")
    assert remedy.endswith(f"-> set --installed-in {HOME}")
    assert (empty, verdict) == ("", "Harbourmaster is not healthy: 1 fault.")


async def test_a_cluster_with_half_of_it_is_told_what_is_missing(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    async with client_of(plane.kubeconfig) as client:
        report = await look(client)
        (finding,) = report.findings
        assert (finding.check, finding.severity) == ("installation", "fault")
        assert finding.text == f"is not installed in namespace {HOME}"
        assert finding.remedy.startswith("install it: docs/howto/installing.md")
        plane.kubectl(
            "apply", "--server-side", f"--kustomize={deployed_installation.manifests.DEPLOY}/crds"
        )
        plane.kubectl("create", "namespace", HOME)
        (finding,) = (await look(client)).findings
        assert finding.text == f"is not installed in namespace {HOME}"
        items = deployed_installation.manifests.render(
            plane.kubectl, deployed_installation.manifests.DEFAULT
        )
        kinds = {"Deployment"}
        some = [item for item in items if item["kind"] in kinds]
        plane.kubectl(
            "apply",
            "--server-side",
            "-f=-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": some}),
        )
        report = await look(client)
        first = report.findings[0]
        assert first.subject == "Harbourmaster"
        assert first.text.startswith("is only partly installed: no ServiceAccount harbourmaster-")
        assert "docs/howto/installing.md" in first.remedy
        assert not report.healthy


def policies(deployed):
    return {
        webhook["name"]: webhook["failurePolicy"]
        for kind in CONFIGURATIONS
        for webhook in deployed.stored_object(kind, NAME)["webhooks"]
    }


@pytest.mark.parametrize("is_alive", [True, False], ids=["controller at work", "controller dead"])
async def test_the_glass_is_broken_and_put_back_to_the_letter(deployed, doctored, is_alive):
    await until(doctored, lambda report: report.healthy)
    before = policies(deployed)
    file = deployed.plane.kubeconfig
    with contextlib.nullcontext() if is_alive else deployed.end_process("controller"):
        without = doctor(file, "--break-glass", "on")
        assert without.returncode == 2
        assert "--reason" in without.stderr
        assert policies(deployed) == before
        done = doctor(file, "--break-glass", "on", "--reason", "incident 4711")
        assert (done.returncode, done.stderr) == (0, "")
        assert set(policies(deployed).values()) == {"Ignore"}
        again = doctor(file, "--break-glass", "on", "--reason", "another")
        assert again.returncode == 0
        assert "on already" in again.stdout
        noted = json.loads(
            deployed.stored_object(CONFIGURATIONS[0], NAME)["metadata"]["annotations"][ANNOTATION]
        )
        assert (noted["by"], noted["reason"]) == ("playground-admin", "incident 4711")
        report = await until(
            doctored,
            lambda report: findings_of(report, "configurations", "warning", "incident 4711"),
        )
        assert (
            "--break-glass off"
            in findings_of(report, "configurations", "warning", "4711")[0].remedy
        )
        if is_alive:
            # It looks at each change, and leaves this one alone.
            metrics = Harbour(deployed.plane, deployed.installation).metrics()
            kind = "MutatingWebhookConfiguration"
            assert metrics[f'harbourmaster_break_glass{{kind="{kind}"}}'] == 1
            assert set(policies(deployed).values()) == {"Ignore"}
            assert "break-glass" in deployed.installation.log("controller").read_text()
        off = doctor(file, "--break-glass", "off")
        assert (off.returncode, off.stderr) == (0, "")
        assert policies(deployed) == before
        assert "annotations" not in deployed.stored_object(CONFIGURATIONS[0], NAME)["metadata"]
        assert "break-glass mode is off" in doctor(file, "--break-glass", "off").stdout
    events = json.loads(deployed.kubectl("get", "events.events.k8s.io", "-o=json").stdout)["items"]
    notes = [event["note"] for event in events if event["reason"] == "BreakGlassStarted"]
    assert any(
        "playground-admin started break-glass mode" in note and "4711" in note for note in notes
    )
    await until(doctored, lambda report: report.healthy)
    assert policies(deployed) == before


async def test_with_the_glass_broken_pods_of_gated_namespaces_come_in(deployed, doctored):
    await until(doctored, lambda report: report.healthy)
    metadata = {"name": "gated", "annotations": {OPT_IN_KEY: OPT_IN}}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    kubectl = deployed.kubectl
    pod = ("run", "pod", "--image=none", "--namespace=gated", "--dry-run=server")
    with deployed.there(manifest):
        kubectl(
            "wait",
            "--for=jsonpath={.metadata.labels.gates\\.harbourmaster\\.dev/enabled}=true",
            "namespace/gated",
            WAIT,
        )
        kubectl(
            "wait",
            "--for=create",
            "serviceaccount/default",
            "--namespace=gated",
            WAIT,
        )
        with deployed.kill_process("webhook"):
            refused = kubectl(*pod, check=False)
            assert refused.returncode != 0
            assert "failed calling webhook" in refused.stderr
            done = doctor(deployed.plane.kubeconfig, "--break-glass", "on", "--reason", "let in")
            assert done.returncode == 0
            # The API server learns of it a moment later.
            eventually(
                lambda: kubectl(*pod, check=False), is_right=lambda result: not result.returncode
            )
        assert doctor(deployed.plane.kubeconfig, "--break-glass", "off").returncode == 0
    await until(doctored, lambda report: report.healthy)
