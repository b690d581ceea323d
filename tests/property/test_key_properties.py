"""Properties of every key, however it is written: the reports about it, and their limits."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from harbourmaster.gates.known_keys import (
    KNOWN_KEYS,
    PREFIXES,
    WRITTEN_KEYS,
    mistaken_opt_in,
    similar_key,
    unknown_keys,
)
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.webhook.review import MAX_WARNING
from helpers.admission import admit, keys, pod
from helpers.properties import TIMEOUT, cases

CODE = "gate-key-unknown"
LONG = sorted(key for key in WRITTEN_KEYS if len(key.partition("/")[2]) > 6)

many = settings(max_examples=cases(2000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

# As JSON carries them.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
any_keys = st.one_of(
    st.sampled_from(sorted(KNOWN_KEYS)),
    st.builds(str.__add__, st.sampled_from(["", "x", *PREFIXES]), texts),
)
maps = st.dictionaries(any_keys, texts, max_size=6)


@st.composite
def mistyped_keys(draw):
    """A key that people write and what one wrong keystroke makes of it."""
    key = draw(st.sampled_from(LONG))
    prefix, slash, name = key.partition("/")
    at = draw(st.integers(0, len(name) - 1))
    typed = draw(st.sampled_from(["", *"-_x", name[at].upper(), name[at] * 2]))
    return key, f"{prefix}{slash}{name[:at]}{typed}{name[at + 1 :]}"


@many
@given(written_keys=st.lists(any_keys, max_size=6))
def test_exactly_the_keys_under_our_prefixes_that_are_not_known_are_unknown(written_keys):
    told = unknown_keys(written_keys)
    assert told == [key for key in written_keys if key in told]
    assert all((key in told) == (key not in KNOWN_KEYS) for key in written_keys if _is_ours(key))
    assert all(_is_ours(key) for key in told)


@many
@given(typed=mistyped_keys())
@example(typed=("keptn.sh/pre-deployment-tasks", "keptn.sh/pre-deployment-task"))
def test_a_key_with_one_wrong_keystroke_is_recognised(typed):
    key, wrong = typed
    assume(wrong != key)
    assert unknown_keys([wrong]) == [wrong]
    assert similar_key(wrong) == key


@many
@given(annotations=maps, value=st.one_of(st.just(OPT_IN), texts))
def test_of_an_opt_in_at_most_one_mistake_is_told_and_none_of_the_right_one(annotations, value):
    warnings = mistaken_opt_in(annotations)
    assert len(warnings) <= 1
    assert warnings.keys() <= annotations.keys()
    assert not mistaken_opt_in(annotations | {OPT_IN_KEY: OPT_IN})
    assert not mistaken_opt_in({OPT_IN_KEY: value}).keys() - {OPT_IN_KEY}


@many
@given(annotations=maps, labels=maps)
def test_unknown_keys_add_short_printable_warnings_and_change_nothing_else(annotations, labels):
    annotations = annotations | keys(workload="cart", version="1", app="shop")
    admission = admit(pod(annotations, labels=labels))
    warnings = admission.response.get("warnings", [])
    unknown = unknown_keys(annotations) + unknown_keys(labels)
    assert (CODE in admission.verdict.codes) == bool(unknown)
    assert all(len(warning) <= MAX_WARNING and warning.isprintable() for warning in warnings)
    kept = [
        {key: value for key, value in mapping.items() if key not in unknown}
        for mapping in (annotations, labels)
    ]
    expected = admit(pod(kept[0], labels=kept[1]))
    assert admission.operations == expected.operations
    assert admission.verdict.outcome == expected.verdict.outcome


def _is_ours(key):
    return key.startswith(PREFIXES)
