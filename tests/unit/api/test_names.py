"""The name formats of Kubernetes."""

from __future__ import annotations

import pytest

from harbourmaster.api.names import dns_label, dns_subdomain, label_value, qualified_name

BAD_AT_ENDS = ["-a", "a-", "-"]
NOT_ASCII = ["é", "aé", "\u0661", "a\n", "a b", "\uff41"]


ACCEPTED = {
    dns_label: ["a", "0", "a-b", "a--b", "1a", "a" * 63],
    dns_subdomain: ["a", "a.b", "a-b.c--d.0", "a" * 64, f"{'ab.' * 84}a", "a" * 253],
    qualified_name: [
        *("a", "A", "a.b_c-D", "a__b", "example.com/Name", "x/y", "a" * 63),
        f"{'a' * 253}/{'b' * 63}",
    ],
    label_value: ["", "a", "A.b_c-D", "12345", "a" * 63],
}
REFUSED = {
    dns_label: ["", "A", "a.b", "a_b", "a" * 64],
    dns_subdomain: ["", ".", "a.", ".a", "a..b", "a.-b", "a-.b", "A.b", "a_b", "a" * 254],
    qualified_name: [
        *("", "/", "/a", "a/", "a/b/c", "//", "A/b", "a_b/c", "_a", "a.", "a" * 64),
        *(f"x/{'b' * 64}", f"{'a' * 254}/b"),
    ],
    label_value: ["a/b", ".a", "a_", "a" * 64],
}


@pytest.mark.parametrize("check", ACCEPTED)
def test_what_fits_the_format_is_accepted(check):
    assert [text for text in ACCEPTED[check] if check(text)] == []


@pytest.mark.parametrize("check", REFUSED)
def test_what_does_not_is_refused(check):
    wrong = [*REFUSED[check], *BAD_AT_ENDS, *NOT_ASCII]
    assert [text for text in wrong if not check(text)] == []


def test_an_empty_qualified_name_breaks_two_rules():
    assert [fault.split()[2:4] for fault in qualified_name("")] == [
        ["is", "empty"],
        ["holds", "only"],
    ]


def test_faults_of_a_prefix_and_of_a_name_are_told_apart():
    prefix, name = qualified_name("Bad/-")
    assert prefix.startswith("prefix part: ")
    assert name.startswith("name part ")


def test_several_slashes_are_one_fault():
    assert len(qualified_name("-/-/-")) == 1


def test_a_text_that_is_too_long_and_malformed_breaks_two_rules():
    assert len(label_value("-" * 64)) == 2


@pytest.mark.parametrize("check", [dns_label, dns_subdomain, qualified_name, label_value])
@pytest.mark.parametrize(
    "text", ["a" * 200_000 + "!", "a-" * 100_000, "a." * 100_000, "-" * 200_000]
)
def test_a_long_text_is_refused_without_backtracking(check, text):
    assert check(text)
