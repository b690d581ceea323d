"""Repairs of webhook configurations, whatever other clients add, change and remove."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.certs.authority import create_authority
from harbourmaster.registration import additions
from harbourmaster.registration.desired import GATES_LABEL, Home, desired_configurations
from harbourmaster.registration.drift import apply_repairs, compare
from harbourmaster.registration.settings import RegistrationSettings
from helpers.properties import TIMEOUT, cases

AUTHORITY = create_authority(datetime(2026, 3, 1, tzinfo=UTC)).certificate
KEYS = ["control-plane", "kubernetes.io/metadata.name", "a", GATES_LABEL]
VALUES = ["true", "h", "kube-system", "1"]
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)
selectors = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(expressions, max_size=3), "matchLabels": labels}
)
conditions = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["held", "not-held", "mine", "theirs"]),
            "expression": st.sampled_from(["true", "false"]),
        }
    ),
    max_size=3,
    unique_by=lambda condition: condition["name"],
)
settings_of_ours = st.builds(
    RegistrationSettings,
    namespace_selector=st.none() | selectors,
    object_selector=st.none() | selectors,
    api_server_gate=st.booleans(),
    match_conditions=st.dictionaries(
        st.sampled_from(["mine", "more"]), st.just("true"), max_size=1
    ),
    annotations=st.dictionaries(st.sampled_from(["x", "y"]), st.just("1"), max_size=1),
)
changes = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(["extend", "replace", "remove"]),
        st.one_of(
            st.tuples(st.sampled_from(["namespaceSelector", "objectSelector"]), selectors),
            st.tuples(st.just("matchConditions"), conditions),
            st.tuples(st.just("failurePolicy"), st.sampled_from(["Fail", "Ignore"])),
            st.tuples(st.just("rules"), st.just([])),
            st.tuples(st.just("clientConfig"), st.just({"url": "https://example.com"})),
        ),
    ),
    max_size=4,
)


def define(ours, resource):
    wanted = desired_configurations(ours, Home("h", "1"), AUTHORITY)[resource]
    wanted = json.loads(json.dumps(wanted))
    return additions.with_applied(wanted, wanted)


def change(configuration, by_others):
    for place, how, (field, value) in by_others:
        webhook = configuration["webhooks"][place % len(configuration["webhooks"])]
        if how == "remove":
            webhook.pop(field, None)
        elif how == "extend" and field.endswith("Selector"):
            selector = webhook.setdefault(field, {})
            listed = [*selector.get("matchExpressions", []), *value.get("matchExpressions", [])]
            named = {**selector.get("matchLabels", {}), **value.get("matchLabels", {})}
            webhook[field] = {"matchExpressions": listed, "matchLabels": named}
        elif how == "extend" and field == "matchConditions":
            # The API server refuses two of one name.
            others = {condition["name"]: condition for condition in webhook.get(field, [])}
            webhook[field] = [*others.values(), *(v for v in value if v["name"] not in others)]
        else:
            webhook[field] = copy.deepcopy(value)


def terms(webhook, field):
    return {additions._text(term) for term in additions._terms_of(webhook.get(field))}


@pytest.mark.timeout(TIMEOUT)
@given(
    st.sampled_from([MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS]),
    settings_of_ours,
    settings_of_ours,
    changes,
    st.booleans(),
)
@settings(max_examples=cases(2000))
def test_a_repair_loses_nothing_that_we_need_and_nothing_that_others_added(
    resource, earlier, ours, by_others, is_noted
):
    """Whatever is added, changed and removed (platform-spec 6.2)."""
    stored, wanted = define(earlier, resource), define(ours, resource)
    before = {webhook["name"]: copy.deepcopy(webhook) for webhook in stored["webhooks"]}
    change(stored, by_others)
    if not is_noted:
        del stored["metadata"]["annotations"]
    observed = copy.deepcopy(stored)
    changed = {webhook["name"]: webhook for webhook in observed["webhooks"]}
    repairs = compare(stored, wanted)
    repaired = apply_repairs(stored, repairs, wanted)
    # Pure, and the same in each run.
    assert stored == observed
    assert repairs == compare(stored, wanted)
    # One repair is enough, and the next one sees no drift.
    assert compare(repaired, wanted) == []
    assert repaired["metadata"]["annotations"] == wanted["metadata"]["annotations"]
    assert [webhook["name"] for webhook in repaired["webhooks"]] == [
        webhook["name"] for webhook in wanted["webhooks"]
    ]
    all_ours = {
        text
        for webhook in wanted["webhooks"]
        for f in additions.MERGED
        for text in terms(webhook, f)
    }
    for webhook, needed in zip(repaired["webhooks"], wanted["webhooks"], strict=True):
        name = webhook["name"]
        for field, value in needed.items():
            # All that we need is there.
            if field not in additions.MERGED:
                assert webhook[field] == value
        for field in additions.MERGED:
            assert terms(webhook, field) >= terms(needed, field)
            added = terms(changed.get(name, {}), field) - terms(before.get(name, {}), field)
            kept = terms(webhook, field) - terms(needed, field)
            # Nothing else but what others added is there, and of that all which may stay.
            assert kept <= terms(changed.get(name, {}), field)
            if not is_noted:
                assert not kept
                continue
            slots = {
                next(iter(term)) if len(term) == 1 else term.get("name")
                for term in additions._terms_of(needed.get(field))
            } - {None}
            for text in added - terms(needed, field):
                term = json.loads(text)
                is_ours = GATES_LABEL in (term.get("key"), *term)
                replaces = (next(iter(term)) if len(term) == 1 else term.get("name")) in slots
                was_ours = text in json.loads(
                    define(earlier, resource)["metadata"]["annotations"][additions.APPLIED]
                )
                if not (is_ours or replaces) and (not was_ours or text in all_ours):
                    assert text in kept
