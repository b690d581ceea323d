"""Workloads that wait for each other are found in a limited number of steps."""

from __future__ import annotations

import msgspec

from harbourmaster.gates.release import CHECKS_KEY
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.lifecycle import wait_cycles as module
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.wait_cycles import wait_cycles
from harbourmaster.lifecycle.wait_items import ItemReport
from harbourmaster.lifecycle.wait_targets import Target
from helpers.gated import GATE, owner_ref


class Services:
    """Services by name, with the labels that they select."""

    def __init__(self, **selectors):
        self.selectors = selectors

    def find(self, _resource, name):
        selector = self.selectors.get(name)
        return Target(name=name, selector=selector) if selector is not None else None


def pod(name, wait_for, owner=None, **labels):
    metadata = {
        "name": name,
        "namespace": "prod",
        "labels": labels,
        "annotations": {WAIT_FOR_KEY: wait_for, CHECKS_KEY: "none"},
        "ownerReferences": [owner] if owner is not None else [],
    }
    spec = {"schedulingGates": [{"name": GATE}]}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))


def find_cycles(*pods, met=(), **selectors):
    items = [item for pod in pods for item in pod.wait_conditions.items]
    reports = {
        item: ItemReport(item.text, "Met" if item.text in met else "Pending") for item in items
    }
    return wait_cycles(pods, reports, Services(**selectors))


def test_pods_that_wait_for_each_other_are_a_cycle_and_who_waits_for_them_is_not():
    a, b, c = pod("a", "pod/b"), pod("b", "pod/a"), pod("c", "pod/a")
    assert find_cycles(a, b, c) == {
        ("pod", "a"): "a cycle of waits: pod/a -> pod/b -> pod/a",
        ("pod", "b"): "a cycle of waits: pod/b -> pod/a -> pod/b",
    }
    assert find_cycles(a, b, c, met=("pod/b",)) == {}


def test_a_cycle_goes_through_workloads_labels_and_services():
    cart = pod("cart-1", "service/mail", owner_ref("StatefulSet", "cart", "u-1"), app="cart")
    mail = pod("mail-1", "statefulset/till", app="mail", tier="back")
    till = pod("till-0", "pod/app=cart", owner_ref("StatefulSet", "till", "u-2"), app="till")
    cycles = find_cycles(cart, mail, till, mail={"app": "mail", "tier": "back"})
    text = "statefulset/cart -> pod/mail-1 -> statefulset/till -> statefulset/cart"
    assert cycles["statefulset", "cart"] == f"a cycle of waits: {text}"
    assert len(cycles) == 3
    assert find_cycles(cart, mail, till, mail={"app": "mail", "tier": "front"}) == {}
    assert find_cycles(cart, mail, till) == {}


def test_a_pod_that_waits_for_itself_is_a_cycle():
    assert find_cycles(pod("a", "pod/a")) == {("pod", "a"): "a cycle of waits: pod/a -> pod/a"}


def test_the_text_of_a_long_cycle_names_its_first_workloads():
    pods = [pod(f"p{number}", f"pod/p{(number + 1) % 20}") for number in range(20)]
    cycles = find_cycles(*pods)
    assert len(cycles) == 20
    assert cycles["pod", "p7"].startswith("a cycle of waits: pod/p7 -> pod/p8")
    assert cycles["pod", "p7"].endswith("pod/p14 -> ... (20 in all)")


def test_what_many_pods_wait_for_is_looked_up_once():
    asked = []

    class Counted(Services):
        def find(self, resource, name):
            asked.append(name)
            return super().find(resource, name)

    pods = [pod(f"p{number}", "service/db", app="web") for number in range(50)]
    item = pods[0].wait_conditions.items[0]
    reports = {item: ItemReport(item.text, "Pending")}
    assert wait_cycles(pods, reports, Counted(db={"app": "db"})) == {}
    assert asked == ["db"]


def test_the_search_ends_after_so_many_steps(monkeypatch):
    # Each of them waits for all of them.
    chain = [pod(f"p{number:02}", "pod/app=web", app="web") for number in range(30)]
    chain += [pod("a", "pod/b"), pod("b", "pod/a")]
    assert ("pod", "a") in find_cycles(*chain)
    monkeypatch.setattr(module, "MAX_STEPS", 10)
    assert ("pod", "a") not in find_cycles(*chain)
