"""Keptn's objects are written with required fields always, and empty ones never."""

from __future__ import annotations

import msgspec

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.lifecycle.model import (
    AppVersion,
    AppVersionSpec,
    AppVersionStatus,
    Config,
    EvaluationSpec,
    EvaluationStatus,
    TaskContext,
    TaskSpec,
    WorkloadVersionStatus,
)


def encode(value):
    return msgspec.json.decode(msgspec.json.encode(value))


def test_trace_ids_are_spelled_as_in_the_schema():
    status = AppVersionStatus(phase_trace_ids={"AppDeploy": {"traceparent": "x"}})
    assert encode(status) == {"phaseTraceIDs": {"AppDeploy": {"traceparent": "x"}}}


def test_a_pending_status_is_left_to_the_schema():
    assert encode(AppVersionStatus()) == {}
    assert encode(WorkloadVersionStatus(deployment_status="Progressing")) == {
        "deploymentStatus": "Progressing"
    }


def test_all_strings_of_a_context_are_written():
    assert encode(TaskSpec(task_definition="a", context=TaskContext(app_name="x"))) == {
        "taskDefinition": "a",
        "context": {
            "workloadName": "",
            "appName": "x",
            "appVersion": "",
            "workloadVersion": "",
            "taskType": "",
            "objectType": "",
            "metadata": {},
        },
    }


def test_required_fields_of_an_evaluation_are_written():
    assert encode(EvaluationSpec(evaluation_definition="d")) == {
        "evaluationDefinition": "d",
        "workloadVersion": "",
    }
    assert encode(EvaluationStatus()) == {
        "retryCount": 0,
        "evaluationStatus": {},
        "overallStatus": "Pending",
    }


def test_a_config_keeps_keptns_spelling():
    config = msgspec.json.decode(
        b'{"metadata":{"name":"c"},"spec":{"OTelCollectorUrl":"otel:4317",'
        b'"keptnAppCreationRequestTimeoutSeconds":5}}',
        type=Config,
    )
    assert config.spec.otel_collector_url == "otel:4317"
    assert config.spec.creation_request_timeout == 5
    assert config.spec.block_deployment


def test_a_version_round_trips():
    version = AppVersion(
        metadata=Metadata(
            name="a",
            namespace="n",
            owner_references=(OwnerReference(kind="KeptnApp", name="a", controller=True),),
        ),
        spec=AppVersionSpec(app_name="a", version="1", pre_deployment_tasks=("t",)),
    )
    assert msgspec.json.decode(msgspec.json.encode(version), type=AppVersion) == version
    assert version.metadata.key == "n/a"
    assert version.metadata.controller.kind == "KeptnApp"
    assert Metadata().controller is None
