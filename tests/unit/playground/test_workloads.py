from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from harbourmaster.playground.workloads import Workload, workload_name

WEBHOOK = Workload("webhook-2", "webhook", Path("/pods/webhook-2"), 21000, 21001)


CONTROLLER = Workload(
    *("controller", "controller", Path("/pods/controller")),
    port=0,
    health_port=21002,
    values_port=21003,
    metrics_api_port=21004,
)


def test_the_first_of_a_role_has_its_name():
    assert [workload_name("webhook", number) for number in (1, 2)] == ["webhook", "webhook-2"]


@pytest.mark.parametrize("workload", [WEBHOOK, CONTROLLER], ids=["webhook", "controller"])
def test_a_process_has_what_its_pod_has(workload, assert_golden):
    """Our flags follow those of the Deployment, and only the webhook gets the certificate."""
    python, *command = workload.command(["--host=::", "--other=1"], 443)
    assert python == sys.executable
    assert_golden(
        {
            "command": command,
            "environment": workload.environment({"PATH": "/bin", "KUBECONFIG": "/admin"}, 6443),
            "ports": workload.ports,
            "volumes": msgspec.to_builtins(workload.volumes()),
        }
    )
