"""Properties of every number that a provider returns, and of every address that it may have."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.providers.addresses import (
    REFUSED,
    AddressFilter,
    host_and_port,
    literal_address,
    parse_server_url,
)
from harbourmaster.providers.errors import ProviderError
from harbourmaster.providers.numbers import (
    format_fixed6,
    format_general,
    format_shortest,
    parse_finite,
    parse_quantity,
)
from helpers.properties import TIMEOUT, cases

many = settings(max_examples=cases(1000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

finite_floats = st.floats(allow_nan=False, allow_infinity=False)
FIXED = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")
REFUSED_4 = [
    network
    for networks in REFUSED.values()
    for network in map(ip_network, networks)
    if network.version == 4
]


def outcome(function, *arguments):
    """The result of the function, or its error, which is one short line."""
    try:
        return function(*arguments)
    except ProviderError as error:
        provider_error = error
    assert str(provider_error).isprintable()
    assert len(str(provider_error)) < 500
    return provider_error


@many
@given(finite_floats)
def test_the_shortest_form_is_the_number_itself_and_nothing_shorter(number):
    text = format_shortest(number)
    assert FIXED.fullmatch(text)
    assert math.copysign(1, float(text)) == math.copysign(1, number)
    assert parse_finite(text) == float(text) == number
    digits = len(Decimal(text).normalize().as_tuple().digits)
    assert digits == len(Decimal(repr(number)).normalize().as_tuple().digits)


@many
@given(finite_floats, st.integers(1, 17))
def test_the_general_form_has_so_many_digits_and_an_exponent_where_go_has_one(number, digits):
    text = format_general(number, digits)
    mantissa, _, exponent = text.partition("e")
    assert len(mantissa.lstrip("-0.").replace(".", "")) <= digits
    assert "." not in mantissa or not mantissa.endswith(("0", "."))
    if exponent:
        assert re.fullmatch(r"[+-][0-9]{2,3}", exponent)
        assert not -4 <= int(exponent) < digits
    exact = Decimal(number)
    assert abs(Decimal(text) - exact) <= abs(exact) * Decimal(10) ** (1 - digits)


@many
@given(finite_floats)
def test_the_fixed_form_has_six_decimals(number):
    assert re.fullmatch(r"-?[0-9]+\.[0-9]{6}", format_fixed6(number))
    assert abs(Decimal(format_fixed6(number)) - Decimal(number)) <= Decimal("5e-7")


@many
@given(
    st.text(max_size=30)
    | st.text("0123456789+-.eEinfNa_ xmkKGi", max_size=12)
    | st.integers()
    | st.floats()
    | st.none()
    | st.booleans()
)
def test_whatever_is_said_is_a_finite_number_or_an_error(said):
    for read in (parse_finite, *([parse_quantity] if isinstance(said, str) else [])):
        result = outcome(read, said)
        assert isinstance(result, ProviderError) or type(result) is float
        assert isinstance(result, ProviderError) or math.isfinite(result)


@many
@given(st.integers(-(10**6), 10**6), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "e3", "E2"]))
def test_a_quantity_is_its_number_times_its_unit(number, unit):
    factor = {"": 1, "m": Decimal("0.001"), "k": 1000, "M": 10**6, "Ki": 1024, "Mi": 2**20}
    factor |= {"e3": 1000, "E2": 100}
    assert parse_quantity(f"{number}{unit}") == float(number * Decimal(factor[unit]))


def hide_address(address, form):
    """An IPv6 address by which an IPv4 one is reached."""
    number = int(address)
    return {
        "mapped": IPv6Address(0xFFFF << 32 | number),
        "compatible": IPv6Address(number),
        "translated": IPv6Address(0xFFFF << 48 | number),
        "nat64": IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        "6to4": IPv6Address(0x2002 << 112 | number << 80 | 0x1234),
        "teredo server": IPv6Address(0x20010000 << 96 | number << 64 | 0xF7F7F7F7),
        "teredo client": IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | number ^ 0xFFFFFFFF),
        "isatap": IPv6Address(0x20010DB8 << 96 | 0x5EFE << 32 | number),
    }[form]


FORMS = [
    *("mapped", "compatible", "translated", "nat64", "6to4"),
    *("teredo server", "teredo client", "isatap"),
]
refused_4 = st.sampled_from(REFUSED_4).flatmap(
    lambda network: st.integers(int(network[0]), int(network[-1])).map(IPv4Address)
)


@many
@given(refused_4, st.sampled_from(FORMS))
def test_what_is_refused_is_so_in_every_form(address, form):
    assert AddressFilter().refusal(address)
    assert AddressFilter().refusal(hide_address(address, form))


@many
@given(st.integers(0, 2**32 - 1).map(IPv4Address), st.sampled_from(FORMS))
def test_a_form_says_what_its_address_says(address, form):
    open_form = hide_address(address, form)
    refused = any(address in network for network in REFUSED_4)
    assert bool(AddressFilter().refusal(address)) is refused
    if open_form not in (IPv6Address("::"), IPv6Address("::1")):
        assert bool(AddressFilter().refusal(open_form)) is refused
    assert AddressFilter((), (str(address),)).refusal(open_form)
    assert not AddressFilter((str(address),)).refusal(address)


authority = st.text("0123456789abcdefx.:[]%@-_/\\?# \t", max_size=40)


@many
@given(st.sampled_from(["http://", "https://", "HTTP://", "//", ""]), authority | st.text())
def test_a_url_is_one_place_or_none(scheme, rest):
    result = outcome(parse_server_url, scheme + rest)
    if isinstance(result, ProviderError):
        return
    host = result.raw_host
    assert result.raw_user is None
    assert 0 < result.port < 65536
    assert re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", host)
    assert host_and_port(result).endswith(f":{result.port}")
    address = literal_address(result)
    if address is not None:
        # It is one that can be checked, and it is checked as it will be connected to.
        outcome(AddressFilter().check, address, host)
