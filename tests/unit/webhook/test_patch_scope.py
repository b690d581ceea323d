"""S13 to S15 by example; tests/property and test_fuzz have them on random objects.

These tests prove kupid-spec 6.3.
"""

from __future__ import annotations

import copy
import json

import pytest

from harbourmaster.webhook.handlers import answer
from helpers.admission import admit, keys, pod, policy_engine
from helpers.objects import body, cluster_policy, policy, required, workload
from helpers.oracles import apply_patch, decode_patch

OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
FULL = cluster_policy(
    nodeName="n1",
    nodeSelector={"disk": "ssd"},
    schedulerName="ours",
    tolerations=[{"key": "pool", "operator": "Exists"}],
    affinity=required({"pool": "etcd"}),
)


def ask(document, *policies, may_patch=True):
    result, _ = answer(body(document), policy_engine(*policies), may_patch=may_patch)
    return json.loads(result)["response"]


HOSTILE = {
    "containers": [{"name": "c", "image": "evil"}],
    "securityContext": {"runAsUser": 0},
    "serviceAccountName": "admin",
    "hostNetwork": True,
    "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
}


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
@pytest.mark.claim("O1")
def test_s14_a_policy_injects_nothing_but_its_five_fields(kind):
    asked = copy.deepcopy(FULL)
    asked["spec"].update(HOSTILE)
    asked["spec"]["affinity"].update(HOSTILE)
    document = workload(kind)
    response = ask(document, asked)
    paths = [operation["path"].rsplit("/", 1)[1] for operation in decode_patch(response)]
    assert sorted(paths) == sorted(OWNED)
    text = json.dumps(decode_patch(response))
    assert not [name for name in (*HOSTILE, "evil", "hostPath") if name in text]


@pytest.mark.parametrize("key", ["../containers", "~1spec~1containers", "/spec/hostNetwork", "-"])
def test_s14_a_key_that_is_a_path_leads_nowhere(key):
    asked = policy(nodeSelector={key: "x", "disk": "ssd"})
    document = workload("Pod", nodeSelector={"kept": "1"})
    response = ask(document, asked, cluster_policy("other", nodeSelector={"a": "b"}))
    after = apply_patch(document, response)
    assert after["spec"].pop("nodeSelector").keys() <= {"kept", "a", "disk", key}
    before = document["spec"]
    assert after["spec"] == {name: before[name] for name in before if name != "nodeSelector"}


@pytest.mark.parametrize("name", ["../x", "/spec/hostNetwork", "~1spec", '"},{"op":"remove"', "\n"])
def test_s14_a_scheduler_that_is_a_path_leads_nowhere(name):
    document = pod(keys(workload="w"), schedulerName=name)
    answer = admit(document, gating="schedulerName")
    assert answer.is_untouched
    assert answer.verdict.codes == ("gate-foreign-scheduler",)
    assert "\n" not in answer.response["warnings"][0]
