from __future__ import annotations

from pathlib import Path

import pytest

from harbourmaster.playground.kubelet import SecretVolume, TokenVolume
from harbourmaster.playground.workloads import Workload, workload_name

WEBHOOK = Workload("webhook-2", "webhook", Path("/pods/webhook-2"), 21000, 21001)
CONTROLLER = Workload("controller", "controller", Path("/pods/controller"), 0, 21002)
BOTH = pytest.mark.parametrize("workload", [WEBHOOK, CONTROLLER], ids=["webhook", "controller"])


def test_the_first_of_a_role_has_its_name():
    assert [workload_name("webhook", number) for number in (1, 2)] == ["webhook", "webhook-2"]


def test_a_webhook_listens_where_the_service_may_lead():
    command = WEBHOOK.command((), 443)
    assert {"--port=21000", "--health-port=21001", "--host=127.0.0.1"} <= set(command)


def test_a_controller_listens_where_metric_values_are_asked_for():
    controller = CONTROLLER._replace(values_port=21003, metrics_api_port=21004)
    flags = {"--metrics-expose-port=21003", "--metrics-custom-metrics-port=21004"}
    assert flags <= set(controller.command((), 443))
    assert controller.ports == {"health": 21002, "values": 21003, "metrics-api": 21004}


def test_the_controller_registers_the_port_of_the_service():
    assert "--webhook-service-port=21000" in CONTROLLER.command((), 21000)


@BOTH
def test_our_flags_come_after_those_of_the_deployment(workload):
    command = workload.command(["--host=0.0.0.0", "--other=1"], 443)
    assert command.index("--host=0.0.0.0") < command.index("--host=127.0.0.1")
    assert "--other=1" in command


@BOTH
def test_the_module_is_never_one_of_the_user_s_folder(workload):
    assert workload.command((), 443)[1:4] == ["-P", "-m", f"harbourmaster.{workload.role}"]


@BOTH
def test_a_process_finds_the_api_server_as_a_pod_does(workload):
    environment = workload.environment({"PATH": "/bin", "KUBECONFIG": "/admin"}, 6443)
    assert environment == {
        "PATH": "/bin",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "POD_NAME": f"harbourmaster-{workload.name}",
        "POD_NAMESPACE": "harbourmaster-system",
    }
    assert f"--service-account-dir={workload.identity}" in workload.command((), 443)


def test_each_has_a_token_of_its_own_service_account():
    tokens = [volume for work in (WEBHOOK, CONTROLLER) for volume in work.volumes()]
    accounts = {
        token.directory: token.account for token in tokens if isinstance(token, TokenVolume)
    }
    assert accounts == {
        "/pods/webhook-2/serviceaccount": "harbourmaster-webhook",
        "/pods/controller/serviceaccount": "harbourmaster-controller",
    }


def test_only_the_webhook_gets_the_certificate_and_nobody_the_authority_s_key():
    secrets = [
        volume
        for work in (WEBHOOK, CONTROLLER)
        for volume in work.volumes()
        if isinstance(volume, SecretVolume)
    ]
    (secret,) = secrets
    assert secret.directory == "/pods/webhook-2/certs"
    assert (secret.secret, secret.keys) == (
        "harbourmaster-webhook-cert",
        ["ca.crt", "tls.crt", "tls.key"],
    )
    assert "--cert-dir=/pods/webhook-2/certs" in WEBHOOK.command((), 443)


def test_ports_have_the_names_that_the_pod_gives_them():
    assert WEBHOOK.ports == {"webhook": 21000, "health": 21001}
    assert CONTROLLER.ports == {"health": 21002}
