"""Reservations on nodes: what is written, and what of others' stays (rescheduler-spec 6.3)."""

from __future__ import annotations

import json

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.rescheduling.reservation import (
    RESERVATIONS,
    Held,
    RecordedVictim,
    Reservation,
    arrange,
    clear,
    decode_held,
    is_legacy,
    is_owned,
    parse,
    render,
    reserve,
    taint_value,
)

KEY = "CriticalAddonsOnly"
OTHER = {"key": "example.com/other", "value": "v", "effect": "NoSchedule"}
FOREIGN = {"key": KEY, "value": "true", "effect": "NoSchedule"}


def release(node, uids, key):
    return arrange(
        node, [reservation for reservation in node.reservations if reservation.uid not in uids], key
    )


def one(uid="u1", name="c", **fields):
    return Reservation(pod=f"kube-system/{name}", uid=uid, **fields)


def ours(uid="u1"):
    return {"key": KEY, "value": taint_value(uid), "effect": "NoSchedule"}


def node_json(taints=None, annotations=None):
    node = {"metadata": {"name": "n1", "uid": "of-n1"}, "spec": {}}
    if taints is not None:
        node["spec"]["taints"] = taints
    if annotations is not None:
        node["metadata"]["annotations"] = annotations
    return node


def decode_node(node):
    return decode_held(json.dumps(node).encode())


def apply_operations(node, operations):
    """Apply JSON Patch operations as the API server does: an absent value equals null in a test."""
    operations = json.loads(json.dumps(operations))
    for operation in operations:
        parent, _, last = operation["path"].rpartition("/")
        if operation["op"] == "test" and operation["value"] is None:
            parent_object = node
            for part in parent.split("/")[1:]:
                parent_object = parent_object[part.replace("~1", "/")]
            assert last.replace("~1", "/") not in parent_object
    rest = [
        operation
        for operation in operations
        if operation["op"] != "test" or operation["value"] is not None
    ]
    after = jsonpatch.apply_patch(node, rest)
    for place, name in ((after["spec"], "taints"), (after["metadata"], "annotations")):
        # What is empty is stored as absent.
        if not place.get(name):
            place.pop(name, None)
    return after


def test_a_bare_node_is_kept_by_one_patch():
    node = node_json()
    after = apply_operations(node, reserve(decode_node(node), one(), KEY))
    assert after["spec"]["taints"] == [ours()]
    assert parse(after["metadata"]["annotations"][RESERVATIONS]) == (one(),)


def test_the_patch_holds_only_for_the_node_that_was_read():
    node = node_json([OTHER], {"a": "b"})
    operations = reserve(decode_node(node), one(), KEY)
    for changed in (
        node_json([], {"a": "b"}),
        node_json([OTHER, FOREIGN], {"a": "b"}),
        node_json([{**OTHER, "timeAdded": "2026-01-01T00:00:00Z"}], {"a": "b"}),
        {**node, "metadata": {**node["metadata"], "uid": "of-another"}},
    ):
        with pytest.raises(jsonpatch.JsonPatchTestFailed):
            jsonpatch.apply_patch(
                changed,
                [operation for operation in operations if operation.get("value") is not None],
            )


def test_two_share_one_taint_and_the_last_one_takes_it_away():
    first = apply_operations(
        node_json([OTHER]), reserve(decode_node(node_json([OTHER])), one("u1"), KEY)
    )
    both = apply_operations(first, reserve(decode_node(first), one("u2", "d"), KEY))
    assert both["spec"]["taints"] == [OTHER, ours("u1")]
    assert [reservation.uid for reservation in decode_node(both).reservations] == ["u1", "u2"]
    left = apply_operations(both, release(decode_node(both), {"u1"}, KEY))
    assert left["spec"]["taints"] == [OTHER, ours("u1")]
    none = apply_operations(left, release(decode_node(left), {"u2"}, KEY))
    assert none["spec"]["taints"] == [OTHER]
    assert not decode_node(none).has_ours(KEY)


def test_where_a_taint_of_others_has_the_place_only_the_annotation_comes_and_goes():
    node = node_json([OTHER, FOREIGN])
    kept = apply_operations(node, reserve(decode_node(node), one(), KEY))
    assert kept["spec"]["taints"] == [OTHER, FOREIGN]
    assert decode_node(kept).reservations == (one(),)
    after = apply_operations(kept, release(decode_node(kept), {"u1"}, KEY))
    assert after["spec"]["taints"] == [OTHER, FOREIGN]
    assert not decode_node(after).has_ours(KEY)


def test_a_taint_of_ours_with_another_effect_goes_with_the_rest():
    node = node_json([{**ours(), "effect": "NoExecute"}, FOREIGN])
    assert apply_operations(node, release(decode_node(node), set(), KEY))["spec"]["taints"] == [
        FOREIGN
    ]


def test_a_taint_of_ours_from_when_the_key_was_another_one_goes_with_the_annotation():
    former = {**ours(), "key": "example.com/former"}
    alike = {**former, "value": "resched.mine"}
    before = node_json([OTHER, former, alike, FOREIGN])
    node = node_json(before["spec"]["taints"], {RESERVATIONS: render([one()])})
    for kept in ([], [one()]):
        after = apply_operations(node, arrange(decode_node(node), kept, KEY))
        assert after["spec"]["taints"] == [OTHER, alike, FOREIGN]
    # Without the annotation, the owner of the taint is unknown.
    assert arrange(decode_node(before), [], KEY) == []


def test_nothing_of_ours_is_left_whatever_the_key_is():
    former = {**ours(), "key": "example.com/former"}
    node = node_json([OTHER, former, FOREIGN, ours("u2")], {RESERVATIONS: "[]", "kept": "yes"})
    after = apply_operations(node, clear(decode_node(node)))
    assert after["spec"]["taints"] == [OTHER, FOREIGN]
    assert after["metadata"]["annotations"] == {"kept": "yes"}
    assert clear(decode_node(after)) == []


@pytest.mark.parametrize("text", ["", "{", "7", "[7]", '[{"pod": "x", "uid": "u"}]', "[" * 5000])
def test_an_annotation_that_says_nothing_goes(text):
    node = node_json([ours()], {RESERVATIONS: text, "kept": "yes"})
    assert decode_node(node).reservations == ()
    after = apply_operations(node, arrange(decode_node(node), [], KEY))
    assert "taints" not in after["spec"]
    assert after["metadata"]["annotations"] == {"kept": "yes"}


def test_nothing_is_to_be_done_twice():
    node = node_json([FOREIGN], {"a": "b"})
    assert release(decode_node(node), {"u1"}, KEY) == []
    kept = apply_operations(node, reserve(decode_node(node), one(), KEY))
    assert reserve(decode_node(kept), one(), KEY) == []


def test_a_recorded_reservation_is_updated():
    node = node_json()
    kept = apply_operations(node, reserve(decode_node(node), one(), KEY))
    more = one(victims=(RecordedVictim("v", "ns", "name"),))
    again = apply_operations(kept, reserve(decode_node(kept), more, KEY))
    assert decode_node(again).reservations == (more,)
    assert '"ns":"ns"' in again["metadata"]["annotations"][RESERVATIONS]


@pytest.mark.parametrize(
    ("value", "pending", "expected"),
    [
        ("kube-system_c", (), True),
        ("kube-system_c", ("kube-system/c",), False),
        ("other_c", (), False),
        ("kube-system_", (), False),
        ("true", (), False),
        (None, (), False),
    ],
)
def test_taints_of_the_first_rescheduler_are_known_by_their_value(value, pending, expected):
    taint = {"key": KEY, "value": value, "effect": "NoSchedule"}
    assert is_legacy(taint, KEY, pending) is expected
    node = node_json([taint])
    operations = arrange(decode_node(node), [], KEY, legacy=pending)
    assert bool(operations) is expected


def test_a_deadline_that_says_nothing_is_over():
    assert one(deadline="soon").ends == 0
    assert (
        one(deadline="2026-01-01T00:00:10Z").ends - one(deadline="2026-01-01T00:00:00Z").ends == 10
    )


@given(st.text(min_size=1))
def test_every_value_is_one_that_the_api_takes(uid):
    value = taint_value(uid)
    assert len(value) <= 63
    assert value.replace(".", "").isalnum()
    assert is_owned({"key": KEY, "value": value}, KEY)


_TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([KEY, "a", "b"]),
            "value": st.sampled_from(["true", "resched", "x", ""]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        }
    ),
    unique_by=lambda taint: (taint["key"], taint["effect"]),
    max_size=5,
)


@given(_TAINTS, st.lists(st.sampled_from(["u1", "u2", "u3"]), max_size=6))
def test_others_keep_their_taints_whatever_we_do(taints, uids):
    node = node_json(taints or None)
    kept = set()
    for uid in uids:
        if uid in kept:
            kept.remove(uid)
            operations = release(decode_node(node), {uid}, KEY)
        else:
            kept.add(uid)
            operations = reserve(decode_node(node), one(uid), KEY)
        node = apply_operations(node, operations)
        written = node["spec"].get("taints") or []
        mine = [taint for taint in written if is_owned(taint, KEY)]
        assert [taint for taint in written if taint not in mine] == taints
        assert {reservation.uid for reservation in decode_node(node).reservations} == kept
        blocked = any(taint["key"] == KEY and taint["effect"] == "NoSchedule" for taint in taints)
        assert len(mine) == (1 if kept and not blocked else 0)
    node = apply_operations(node, release(decode_node(node), kept, KEY))
    assert not decode_node(node).has_ours(KEY)
    assert (node["spec"].get("taints") or []) == taints


def test_reservations_are_read_as_they_were_written():
    reservation = one(
        since="s", deadline="d", attempt=3, tier=2, victims=(RecordedVictim("v", "a", "b"),)
    )
    assert parse(render([reservation, one("u2")])) == (reservation, one("u2"))
    assert Held("n", "u").reservations == ()
