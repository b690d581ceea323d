"""Tolerations and affinity in words."""

from __future__ import annotations

import pytest

from harbourmaster.policies.field_text import sentence
from harbourmaster.policies.model import PREFERRED, REQUIRED

ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
CORES = {
    "matchExpressions": [
        {"key": "cores", "operator": "Gt", "values": ["8"]},
        {"key": "spot", "operator": "DoesNotExist"},
        {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
CART = {"labelSelector": {"matchLabels": {"app": "cart"}}, "topologyKey": "zone"}
NODE = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
BESIDE, APART = (f"spec.affinity.pod{anti}Affinity." for anti in ("", "Anti"))


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("spec.nodeName", "n1", "n1"),
        (f'spec.nodeSelector["x.tolerations[{REQUIRED}"]', "ssd", "ssd"),
        ("spec.tolerations[0]", {"operator": "Exists"}, "tolerates every taint"),
        (
            "spec.tolerations[1]",
            {"key": "pool", "value": "etcd", "effect": "NoExecute", "tolerationSeconds": 0},
            "tolerates pool=etcd:NoExecute for 0 s",
        ),
        (
            NODE,
            [ZONE, CORES],
            (
                "only on nodes with zone in (a, b) or cores > 8 and spot is not there and "
                "disk!=hdd and metadata.name=n1"
            ),
        ),
        (NODE, [{}], "only on nodes with {}"),
        (
            f"spec.affinity.nodeAffinity.{PREFERRED}[0]",
            {"weight": 3, "preference": ZONE},
            "rather on nodes with zone in (a, b) (weight 3)",
        ),
        (f"{BESIDE}{REQUIRED}[0]", CART, "only near pods with app=cart, by zone"),
        (
            f"{APART}{REQUIRED}[0]",
            {**CART, "matchLabelKeys": ["hash"]},
            (
                'never near {"labelSelector":{"matchLabels":{"app":"cart"}},'
                '"topologyKey":"zone","matchLabelKeys":["hash"]}'
            ),
        ),
        (
            f"{APART}{PREFERRED}[0]",
            {"weight": 5, "podAffinityTerm": CART},
            "rather not near pods with app=cart, by zone (weight 5)",
        ),
        (
            f"{BESIDE}{PREFERRED}[0]",
            {"weight": 5, "podAffinityTerm": CART},
            "rather near pods with app=cart, by zone (weight 5)",
        ),
        ("spec.tolerations[0]", {"key": "k" * 600}, f"tolerates {'k' * 489}…"),
    ],
)
def test_a_field_is_said_in_a_sentence(path, value, text):
    assert sentence(path, value) == text
