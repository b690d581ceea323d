"""The bounds of required node affinity: how much is built, and what a refusal costs."""

from __future__ import annotations

import itertools
import json

import pytest

from harbourmaster.policies import affinity_product
from harbourmaster.policies.affinity_product import (
    MAX_BYTES,
    MAX_TERMS,
    ProductTooLargeError,
    compile_requirement,
    conjunction,
    node_terms,
)
from helpers.policies import expressions, one_of

A, B = one_of("a", "A"), one_of("b", "B")


def terms(pod, policy, *, skip=False):
    start = None if pod is None else node_terms(pod)
    product, _ = conjunction(start, compile_requirement(policy), {}, skip_conflicts=skip)
    return list(product.terms)


def alternatives(key, count, *, values=("",)):
    return [expressions(one_of(key, *(f"{i}{value}" for value in values))) for i in range(count)]


def test_as_many_terms_as_the_bound_are_built():
    assert len(terms(None, alternatives("a", MAX_TERMS))) == MAX_TERMS
    half = MAX_TERMS // 2
    assert len(terms(alternatives("a", 2), alternatives("b", half))) == MAX_TERMS


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        (None, alternatives("a", MAX_TERMS + 1)),
        (alternatives("a", 27), alternatives("b", 19)),
    ],
)
def test_one_term_more_than_the_bound_is_too_many(pod, policy, skip):
    with pytest.raises(ProductTooLargeError, match=r"^513 terms, more than 512$"):
        terms(pod, policy, skip=skip)


def test_terms_that_absorb_are_not_counted_as_multiplied():
    pod = [*alternatives("a", 500), expressions(A)]
    policy = [*alternatives("a", 500), expressions(B)]
    with pytest.raises(ProductTooLargeError, match="1001 terms"):
        terms(pod, policy)
    assert len(terms(pod[:-1], policy)) == 500


KIBIBYTE = "x" * 1024


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        (None, alternatives("a", 256, values=[KIBIBYTE])),
        (alternatives("a", 16, values=[KIBIBYTE]), alternatives("b", 16)),
        (alternatives("a", 16), alternatives("b", 16, values=[KIBIBYTE])),
    ],
)
def test_more_bytes_than_the_bound_are_too_many(pod, policy, skip):
    with pytest.raises(ProductTooLargeError, match=r"^about \d+ KiB, more than 256 KiB$"):
        terms(pod, policy, skip=skip)


@pytest.mark.parametrize(
    ("pod", "policy"),
    [
        (None, alternatives("a", 230, values=[KIBIBYTE])),
        (alternatives("a", 15, values=[KIBIBYTE]), alternatives("b", 15)),
    ],
)
def test_what_fits_the_bound_of_bytes_is_built(pod, policy):
    product = terms(pod, policy)
    assert 225 * 1024 < len(json.dumps(product)) < MAX_BYTES


def test_large_term_that_absorbs_is_counted_once():
    large = expressions(A, one_of("b", *(f"{index}{KIBIBYTE}" for index in range(200))))
    product = terms([large, expressions(B)], [expressions(A), *alternatives("c", 3)])
    assert len(product) == 5
    assert product[0] == large


def test_size_bounds_the_text_from_above():
    pod, policy = alternatives("a", 9), [*alternatives("b", 9), expressions(A)]
    product, _ = conjunction(node_terms(pod), compile_requirement(policy), {}, skip_conflicts=False)
    assert product is not None
    assert product.size >= len(json.dumps(product.terms, separators=(",", ":"))) - len("[]")


@pytest.mark.parametrize("skip", [False, True])
def test_nothing_is_built_that_is_too_large(monkeypatch, skip):
    def refuse(*_):
        raise AssertionError("a term was built")

    monkeypatch.setattr(affinity_product, "_merge", refuse)
    for pod, policy in (
        (alternatives("a", 30), alternatives("b", 30)),
        (alternatives("a", 16, values=[KIBIBYTE]), alternatives("b", 16)),
    ):
        with pytest.raises(ProductTooLargeError):
            terms(pod, policy, skip=skip)


def count_comparisons(monkeypatch):
    calls = itertools.count()
    compare = affinity_product.excluding
    monkeypatch.setattr(
        affinity_product, "excluding", lambda *sides: (next(calls), compare(*sides))[1]
    )
    return lambda: next(calls)


@pytest.mark.parametrize(
    ("pod_key", "skip"), [("a", False), ("a", True), ("b", True)], ids=["and", "skip", "fitting"]
)
def test_refusal_compares_no_more_pairs_than_may_be_built(monkeypatch, pod_key, skip):
    made = count_comparisons(monkeypatch)
    pod = alternatives(pod_key, 60, values=["p"])
    with pytest.raises(ProductTooLargeError):
        terms(pod, alternatives("a", 60), skip=skip)
    assert made() <= MAX_TERMS


class Counted(frozenset):
    comparisons = 0

    def __le__(self, superset):
        Counted.comparisons += 1
        return super().__le__(superset)


@pytest.mark.parametrize("shared", [[], [B]])
def test_absorption_looks_only_at_policy_terms_that_may_absorb(monkeypatch, shared):
    key_of = affinity_product.node_term_key
    monkeypatch.setattr(affinity_product, "node_term_key", lambda term: Counted(key_of(term)))
    monkeypatch.setattr(Counted, "comparisons", 0)
    pod = [expressions(*shared, one_of("a", str(index))) for index in range(300)]
    policy = [expressions(*shared, one_of("a", str(index))) for index in range(200, 500)]
    with pytest.raises(ProductTooLargeError, match=r"^60100 terms"):
        terms(pod, policy)
    assert Counted.comparisons == 100


# What the pod brought


def bounded_product(pod, policy, brought):
    return conjunction(
        node_terms(pod),
        compile_requirement(policy),
        {},
        skip_conflicts=False,
        brought=node_terms(brought),
    )[0]


def test_policy_of_one_term_fits_whatever_number_the_pod_brought():
    pod = alternatives("a", MAX_TERMS + 88)
    assert len(bounded_product(pod, [expressions(B)], pod).terms) == len(pod)
    with pytest.raises(ProductTooLargeError, match=r"^1200 terms, more than 600$"):
        bounded_product(pod, [expressions(A), expressions(B)], pod)


def test_repeated_terms_of_the_pod_raise_no_bound():
    pod = [expressions(A)] * 600
    with pytest.raises(ProductTooLargeError, match=r"^513 terms, more than 512$"):
        bounded_product(pod, alternatives("b", 513), pod)


def test_policy_of_one_term_fits_a_pod_that_is_over_the_bytes_by_itself():
    pod = alternatives("a", 250, values=["x" * 1100])
    assert len(bounded_product(pod, [expressions(B)], pod).terms) == 250
    with pytest.raises(ProductTooLargeError, match="KiB, more than 256 KiB"):
        bounded_product(pod, [expressions(A), expressions(B)], pod)


def test_a_pod_within_the_bytes_is_not_brought_over_them_by_one_term_either():
    pod = alternatives("a", 250)
    assert len(bounded_product(pod, [expressions(one_of("b", "x" * 512))], pod).terms) == 250
    with pytest.raises(ProductTooLargeError, match="KiB, more than 256 KiB"):
        bounded_product(pod, [expressions(one_of("b", "x" * 2048))], pod)


def test_one_term_over_the_bytes_is_refused_on_any_pod():
    with pytest.raises(ProductTooLargeError, match="KiB, more than 256 KiB"):
        bounded_product(
            [expressions(A)], [expressions(one_of("b", 300 * KIBIBYTE))], [expressions(A)]
        )
