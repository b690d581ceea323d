"""Tolerations, affinity and selectors in words."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.dashboard.sentences import affinity_texts, field_text
from harbourmaster.policies.model import PREFERRED, REQUIRED, Affinity

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
        ("spec.tolerations[0]", {"operator": "Exists"}, "tolerates any taint"),
        (
            "spec.tolerations[1]",
            {"key": "pool", "value": "etcd", "effect": "NoExecute", "tolerationSeconds": 0},
            "tolerates the taint pool=etcd with the effect NoExecute, for 0 s",
        ),
        (
            NODE,
            [ZONE, CORES],
            (
                "only on nodes with zone in (a, b), or with cores > 8 and !spot and disk notin "
                "(hdd) and metadata.name in (n1)"
            ),
        ),
        (NODE, [{}], "only on nodes with nothing that a node can have"),
        (
            f"spec.affinity.nodeAffinity.{PREFERRED}[0]",
            {"weight": 3, "preference": ZONE},
            "rather on nodes with zone in (a, b) (weight 3)",
        ),
        (f"{BESIDE}{REQUIRED}[0]", CART, "only in the same zone as pods with app=cart"),
        (
            f"{APART}{REQUIRED}[0]",
            {**CART, "namespaces": ["shop", "mail"]},
            "never in the same zone as pods with app=cart in the namespaces shop, mail",
        ),
        (
            f"{APART}{PREFERRED}[0]",
            {"weight": 5, "podAffinityTerm": {**CART, "namespaceSelector": {}}},
            "rather not in the same zone as pods with app=cart in all namespaces (weight 5)",
        ),
        ("spec.tolerations[0]", {"key": 7}, '{"key":7}'),
        ("spec.tolerations[0]", {"key": "k" * 600}, f"tolerates the taint {'k' * 479}…"),
    ],
)
def test_a_field_is_said_in_a_sentence(path, value, text):
    assert field_text(path, value) == text


def test_each_rule_of_an_affinity_is_a_sentence():
    raw = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [ZONE]},
            PREFERRED: [{"weight": 1, "preference": ZONE}],
        },
        "podAffinity": {REQUIRED: [CART]},
        "podAntiAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": CART}]},
    }
    assert list(affinity_texts(msgspec.convert(raw, Affinity))) == [
        "only on nodes with zone in (a, b)",
        "rather on nodes with zone in (a, b) (weight 1)",
        "only in the same zone as pods with app=cart",
        "rather not in the same zone as pods with app=cart (weight 5)",
    ]
    assert list(affinity_texts(Affinity())) == []
