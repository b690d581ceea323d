from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.certs.authority import create_authority
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.registration.drift import apply_repairs, certificates_in, compare, describe
from harbourmaster.registration.settings import RegistrationSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OLD, NEW, OTHER = (create_authority(NOW).certificate for _ in range(3))
PODS = "pods.harbourmaster.dev"
WANTED = desired_configurations(RegistrationSettings(), Home("harbour", "1234"), OLD + NEW)


def encode_bundle(*pem):
    return base64.b64encode(b"".join(pem)).decode()


@pytest.fixture(params=[MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS], ids=lambda resource: resource.kind)
def resource(request):
    return request.param


@pytest.fixture
def wanted():
    return copy.deepcopy(WANTED[MUTATING_WEBHOOKS])


@pytest.fixture
def observed(wanted):
    stored = copy.deepcopy(wanted)
    stored["metadata"] |= {
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {"example.com/note": "theirs"},
    }
    stored["metadata"]["labels"]["example.com/team"] = "theirs"
    return stored


def entry(configuration, name=PODS):
    return next(webhook for webhook in configuration["webhooks"] if webhook["name"] == name)


def mended_by(observed, wanted):
    return apply_repairs(observed, compare(observed, wanted), wanted)


def only(observed, wanted):
    (repair,) = compare(observed, wanted)
    return repair


def test_what_was_just_made_has_no_drift(resource):
    assert compare(copy.deepcopy(WANTED[resource]), WANTED[resource]) == []


def test_what_others_add_besides_is_theirs(observed, wanted):
    observed["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    )
    entry(observed)["fieldOfANewerServer"] = "its default"
    assert compare(observed, wanted) == []


def paths(value, path=()):
    """Yield the path of every value in a document, leaves and inner nodes."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from paths(child, (*path, key))


def with_change(value, path):
    result = copy.deepcopy(value)
    target = result
    for key in path[:-1]:
        target = target[key]
    if isinstance(target[path[-1]], bool | int):
        target[path[-1]] += 1
    elif isinstance(target[path[-1]], str):
        target[path[-1]] += "x"
    else:
        del target[path[-1]]
    return result


EVERYTHING = [
    pytest.param(resource, path, id=f"{resource.plural[:3]}:{'.'.join(map(str, path))}")
    for resource in WANTED
    for path in paths(WANTED[resource])
    if path[0] in {"webhooks", "metadata"} and path not in {("metadata",), ("metadata", "name")}
]


@pytest.mark.parametrize(("resource", "path"), EVERYTHING)
def test_each_change_is_found_and_mended_and_nothing_more(resource, path):
    wanted = WANTED[resource]
    observed = with_change(wanted, path)
    repairs = compare(observed, wanted)
    mended = apply_repairs(observed, repairs, wanted)
    if path[-1] == "name" and len(path) == 3:
        # A renamed entry is one that is missing and one too many.
        assert len(repairs) == 2
    assert repairs
    assert compare(mended, wanted) == []
    # An owner of another kind is not ours to remove.
    assert mended == wanted or path[-1] in {"kind", "apiVersion"}


def test_the_observed_object_stays_as_it_was(observed, wanted):
    entry(observed)["failurePolicy"] = "Fail"
    observed["metadata"]["labels"] = {}
    before = copy.deepcopy(observed)
    mended_by(observed, wanted)
    assert observed == before


def test_a_repair_keeps_what_is_not_ours(observed, wanted):
    entry(observed)["timeoutSeconds"] = 30
    entry(observed)["fieldOfANewerServer"] = "its default"
    del observed["metadata"]["labels"]["app.kubernetes.io/name"]
    mended = mended_by(observed, wanted)
    assert entry(mended)["timeoutSeconds"] == 3
    assert entry(mended)["fieldOfANewerServer"] == "its default"
    assert mended["metadata"]["labels"]["example.com/team"] == "theirs"
    assert mended["metadata"]["annotations"] == {"example.com/note": "theirs"}
    assert mended["metadata"]["resourceVersion"] == "7"


def test_single_repairs_can_be_left_out(observed, wanted):
    entry(observed)["timeoutSeconds"] = 30
    entry(observed)["failurePolicy"] = "Fail"
    repairs = [
        difference
        for difference in compare(observed, wanted)
        if difference.field == "failurePolicy"
    ]
    mended = apply_repairs(observed, repairs, wanted)
    assert (entry(mended)["timeoutSeconds"], entry(mended)["failurePolicy"]) == (30, "Ignore")


def test_match_conditions_added_by_hand_are_removed(observed, wanted):
    entry(observed)["matchConditions"] = [{"name": "x", "expression": "true"}]
    repair = only(observed, wanted)
    assert (repair.field, repair.wanted) == ("matchConditions", None)
    assert "matchConditions" not in entry(apply_repairs(observed, [repair], wanted))


def test_a_url_instead_of_the_service_is_replaced(observed, wanted):
    entry(observed)["clientConfig"] = {
        "url": "https://example.com",
        "caBundle": encode_bundle(OLD, NEW),
    }
    mended = mended_by(observed, wanted)
    assert entry(mended)["clientConfig"] == entry(wanted)["clientConfig"]


def test_an_entry_added_by_hand_is_removed(observed, wanted):
    observed["webhooks"].insert(0, {**entry(wanted), "name": "mine.example.com"})
    repair = only(observed, wanted)
    assert apply_repairs(observed, [repair], wanted)["webhooks"] == wanted["webhooks"]
    assert describe(repair, by_hand=True) == (
        "webhook mine.example.com was added by hand and is removed: keep it in a configuration "
        "of your own"
    )


def test_repairs_of_foreign_webhooks_have_the_stored_order(observed, wanted):
    names = [f"webhook-{number}.example.com" for number in range(20)]
    observed["webhooks"] += [{**entry(observed), "name": name} for name in names]
    assert [repair.entry for repair in compare(observed, wanted)] == names


def test_a_missing_entry_comes_back_in_its_place(observed, wanted):
    del observed["webhooks"][0]
    assert mended_by(observed, wanted)["webhooks"] == wanted["webhooks"]


@pytest.mark.parametrize("webhooks", [None, []])
def test_a_configuration_without_entries_is_filled(observed, wanted, webhooks):
    observed["webhooks"] = webhooks
    assert mended_by(observed, wanted)["webhooks"] == wanted["webhooks"]


def test_entries_in_another_order_are_sorted(observed, wanted):
    observed["webhooks"].reverse()
    assert only(observed, wanted).entry == ""
    assert mended_by(observed, wanted)["webhooks"] == wanted["webhooks"]


@pytest.mark.parametrize(
    "bundle",
    [
        encode_bundle(NEW, OLD),
        encode_bundle(OLD, NEW, OLD),
        encode_bundle(b"# ours\n", OLD, b"\n", NEW),
    ],
    ids=["turned", "twice", "with remarks"],
)
def test_the_same_certificates_are_no_drift(observed, wanted, bundle):
    entry(observed)["clientConfig"]["caBundle"] = bundle
    assert compare(observed, wanted) == []


@pytest.mark.parametrize(
    "bundle",
    [
        encode_bundle(OLD),
        encode_bundle(OLD, NEW, OTHER),
        encode_bundle(b"garbage"),
        "no base64!",
        "",
        None,
    ],
    ids=["one less", "one more", "garbage", "no base64", "empty", "absent"],
)
def test_other_certificates_are_drift(observed, wanted, bundle):
    entry(observed)["clientConfig"]["caBundle"] = bundle
    repair = only(observed, wanted)
    assert repair.field == "clientConfig.caBundle"
    mended = apply_repairs(observed, [repair], wanted)
    assert entry(mended)["clientConfig"] == entry(wanted)["clientConfig"]


def test_an_owner_of_an_earlier_namespace_is_replaced(observed, wanted):
    observed["metadata"]["ownerReferences"][0]["uid"] = "earlier"
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    observed["metadata"]["ownerReferences"].append(theirs)
    mended = mended_by(observed, wanted)
    assert mended["metadata"]["ownerReferences"] == [theirs, *wanted["metadata"]["ownerReferences"]]


def test_certificates_are_found_in_a_bundle():
    assert len(certificates_in(encode_bundle(OLD, NEW))) == 2
    assert certificates_in("#") is None
    assert certificates_in(encode_bundle(b"x")) is None


@pytest.mark.parametrize("by_hand", [True, False])
def test_an_event_says_what_was_repaired_and_names_the_setting(wanted, by_hand, assert_golden):
    def event(name, field, value):
        stored = copy.deepcopy(wanted)
        entry(stored, f"{name}.harbourmaster.dev")[field] = value
        return describe(only(stored, wanted), by_hand=by_hand)

    incomplete = {**wanted, "webhooks": wanted["webhooks"][1:]}
    bundle = {**entry(wanted)["clientConfig"], "caBundle": encode_bundle(OTHER)}
    assert_golden(
        [
            event("pods", "failurePolicy", "Fail"),
            event("gated-pods", "failurePolicy", "Ignore"),
            event("templates", "timeoutSeconds", 30),
            event("pods", "sideEffects", "NoneOnDryRun"),
            event("pods", "clientConfig", bundle),
            describe(only(incomplete, wanted), by_hand=by_hand),
        ]
    )


def test_a_condition_is_repaired_where_it_is_ours_and_where_it_is_not(observed, wanted):
    foreign = [{"name": "none", "expression": "false"}]
    entry(observed)["matchConditions"] = foreign
    assert mended_by(observed, wanted)["webhooks"] == wanted["webhooks"]
    entry(wanted)["matchConditions"] = [{"name": "ours", "expression": "true"}]
    assert mended_by(observed, wanted)["webhooks"] == wanted["webhooks"]
    assert not compare(wanted, wanted)
    assert only(observed, wanted).setting == "webhook.matchConditions"


def test_a_long_value_is_cut(observed, wanted):
    entry(observed)["namespaceSelector"] = {"matchLabels": {"a": "x" * 5000}}
    assert len(describe(only(observed, wanted), by_hand=True)) < 500


def test_the_selectors_of_the_validating_entry_are_no_setting():
    wanted = WANTED[VALIDATING_WEBHOOKS]
    observed = copy.deepcopy(wanted)
    observed["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"a": "b"}}
    assert only(observed, wanted).setting == ""
