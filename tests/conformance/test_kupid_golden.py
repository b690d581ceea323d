"""The 143 observed cases of the original policy webhook: each agrees, or differs by a named FIX.

Compared are the verdict, the code, whether a reason is given, the class and field path of each
validation error, and the object after the patch, required node affinity as sets of sets.

These tests prove kupid-spec 8.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from harbourmaster.cli.offline import replay_case
from helpers.oracles import apply_patch, as_sets

DATA = json.loads(Path(__file__).with_name("kupid-golden.json").read_text())
CASES = DATA["cases"]
ERROR_CLASSES = ("Required value", "Invalid value", "Forbidden", "Unsupported value")

# What differs, by the name of the case: the section of the reference that asks for it, and what
# comes instead: an expectation on the response, or the pod spec fields that the result has.
FIXES = {
    "sched default": ("3.3 default-scheduler counts as unset", {"schedulerName": "s1"}),
    "NA value order": ("3.8 values compare as sets", "unchanged"),
    "NA policy two terms, second pass": ("3.8 absorbing product", "unchanged"),
    "podAff namespaces [] vs absent": ("8.1.10 absent equals empty", "unchanged"),
    "policy affinity {}": ("10 row 36: adding nothing is fine", "unchanged"),
    "policy affinity nodeAffinity {}": ("10 row 36: adding nothing is fine", "unchanged"),
    "invalid op in cpsp podSelector": ("2.5 the good policy applies", "applied with warning"),
    "invalid value in psp podSelector kills cluster policies": (
        "2.5 the good policy applies",
        "applied with warning",
    ),
    "In empty values": ("2.5 the good policy applies", "applied with warning"),
    "cronjob v1": ("4 batch/v1 CronJob is handled", {"nodeSelector": {"a": "b"}}),
    "pod UPDATE": ("2.4 pods are immutable", "unchanged"),
    "RC nil template": ("4 no template, no change", "unchanged"),
    "list err": ("6.4 policies are in memory, no listing can fail", {"nodeName": "x"}),
    "bad ct": ("10 row 52: a charset is fine", {"nodeName": "x"}),
    "podSelector bad value in In (accepted!)": ("5.3 rejected, it would break", "denied"),
    "unknown fields dropped": ("6.3 raw patch", {"nodeSelector": {"a": "b"}}),
    "unknown fields dropped even if policy is empty": ("6.3 raw patch", "unchanged"),
    "noise minimal": ("6.3 raw patch", "unchanged"),
    "empty arrays in obj": ("6.3 raw patch", "unchanged"),
    "quantity normal": ("6.3 raw patch", "unchanged"),
    "NotIn matches missing key": ("6.3 raw patch", {"nodeName": "x"}),
    "two cluster, one ns: first wins": ("2.3 order by name", None),
    "two NA policies, 2nd UPDATE reverse order": ("2.3 order by name", "unchanged"),
    "three policies: 2c+1p conflict": ("2.3 order by name", None),
}


def title(case):
    return f"{case['group']}: {case['name']}"


def run(case):
    given = case["given"]
    line = {
        "id": case["name"],
        "namespaces": [given["namespace"]] if given["namespace"] else [],
        "policies": given["clusterPolicies"] + given["policies"],
        "review": given["admissionReview"],
    }
    result = replay_case(json.dumps(line).encode())
    assert result.id == case["name"]
    assert result.http_status == 200
    return json.loads(bytes(result.response))


def pod_spec(document):
    spec = document["spec"]
    if document["kind"] == "Pod":
        return spec
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]["spec"]


def errors_in(reason):
    """(path, class) of each error of a validation reason, sorted."""
    matches = re.findall(rf"(?:^|[\[ ])([\w.\[\]]+): ({'|'.join(ERROR_CLASSES)})", reason)
    return sorted({(path.lstrip("["), kind) for path, kind in matches})


@pytest.mark.parametrize("case", [c for c in CASES if c["name"] not in FIXES], ids=title)
def test_agrees_with_the_original(case):
    response = run(case)
    expected = case["expect"]["response"]
    assert response["uid"] == expected["uid"]
    assert response["allowed"] == expected["allowed"]
    assert response["status"]["code"] == expected["status"]["code"]
    assert response["status"]["metadata"] == {}
    if case["group"] == "validation" and not expected["allowed"]:
        assert errors_in(response["status"]["reason"]) == errors_in(expected["status"]["reason"])
    else:
        for field in ("reason", "message"):
            assert (field in response["status"]) == (field in expected["status"])
    is_deletion = b'"DELETE"' in json.dumps(case["given"]["admissionReview"]).encode()
    skipped = response["allowed"] and "reason" in response["status"] and not is_deletion
    assert not skipped or (response["warnings"] and response["auditAnnotations"])
    document = case["given"]["admissionReview"]
    request = document.get("request") if isinstance(document, dict) else None
    if request and request.get("object"):
        before = request["object"]
        after = case["expect"].get("patchedObject", before)
        assert as_sets(apply_patch(before, response)) == as_sets(after)


@pytest.mark.parametrize("case", [c for c in CASES if c["name"] in FIXES], ids=title)
def test_differs_only_by_the_named_fix(case):
    _, instead = FIXES[case["name"]]
    response = run(case)
    before = case["given"]["admissionReview"]["request"]["object"]
    if instead == "denied":
        assert not response["allowed"]
        assert response["status"]["code"] == 403
        assert "spec.podSelector.matchExpressions[0].values[0]" in response["status"]["reason"]
        return
    assert response["allowed"]
    after = apply_patch(copy.deepcopy(before), response)
    if instead == "unchanged":
        assert "patch" not in response
        assert "reason" not in response["status"]
    elif instead == "applied with warning":
        assert pod_spec(after) != pod_spec(before)
        assert len(response["warnings"]) == 1
        assert response["auditAnnotations"]["policy-invalid"]
    elif instead is None:
        assert pod_spec(after) == by_name_order(case, before)
    else:
        expected = copy.deepcopy(before)
        pod_spec(expected).update(instead)
        assert after == expected


def by_name_order(case, before):
    """The expected simple fields: cluster policies apply by name, then namespaced ones."""
    given = case["given"]
    order = [
        *sorted(given["clusterPolicies"], key=lambda p: p["metadata"]["name"]),
        *sorted(given["policies"], key=lambda p: p["metadata"]["name"]),
    ]
    spec = copy.deepcopy(pod_spec(before))
    for policy in order:
        for field in ("nodeName", "schedulerName"):
            if value := policy["spec"].get(field):
                spec.setdefault(field, value)
        if labels := policy["spec"].get("nodeSelector"):
            spec["nodeSelector"] = {**labels, **spec.get("nodeSelector", {})}
    return spec


def test_every_fix_names_a_case():
    assert set(FIXES) <= {case["name"] for case in CASES}
    assert len(CASES) == 143
