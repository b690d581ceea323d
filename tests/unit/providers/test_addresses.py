"""The allowed URLs and addresses, in all spellings."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from harbourmaster.providers.addresses import (
    AddressFilter,
    describe_server,
    host_and_port,
    literal_address,
    parse_networks,
    parse_server_url,
)
from harbourmaster.providers.errors import BadProviderError, ForbiddenAddressError

METADATA = "169.254.169.254"
REFUSED = [
    *("127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "::1", "::"),  # noqa: S104
    *(METADATA, "169.254.0.1", "fe80::1", "febf::1", "fe80::1%eth0", "fec0::1"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:42::42", "fd20:ce::254"),
    # The agent of EKS Pod Identity, Oracle Cloud, Akamai and Alibaba Cloud.
    *("fd00:ec2::23", "fd00:c1::a9fe:a9fe", "fd00:a9fe:a9fe::1", "fd00:100::100:200"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "ff02::1"),
    # Mapped, compatible, translated.
    *("::ffff:127.0.0.1", f"::ffff:{METADATA}", "::ffff:a9fe:a9fe"),
    *("::127.0.0.1", f"::{METADATA}", "::ffff:0:127.0.0.1", "::ffff:0:a9fe:a9fe"),
    # NAT64, of which the local one may hide the address anywhere.
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1:a9fe:a9:fe00::"),
    # 6to4, Teredo by its server and by its client, ISATAP.
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::", "2001:0:0808:0808::5601:5601"),
    *("2001:db8::5efe:a9fe:a9fe", "2001:db8::200:5efe:7f00:1"),
]
OPEN = [
    *("8.8.8.8", "10.96.0.10", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.253.255.255"),
    *("2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::808:808", "2002:808:808::1"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_internal_addresses_are_rejected(address):
    with pytest.raises(ForbiddenAddressError, match=r"^prom is not allowed: it has an? "):
        AddressFilter().check(address, "prom")


@pytest.mark.parametrize("address", OPEN)
def test_other_addresses_may_be_asked(address):
    assert AddressFilter().check(address, "prom") is None


@pytest.mark.parametrize("address", REFUSED)
def test_everything_may_be_allowed(address):
    assert AddressFilter(("0.0.0.0/0", "::/0")).check(address, "prom") is None


def test_an_allowed_address_is_allowed_in_all_its_forms():
    addresses = AddressFilter(("127.0.0.1",))
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"):
        addresses.check(address, "prom")
    for address in ("127.0.0.2", "::1", "::ffff:127.0.0.2"):
        with pytest.raises(ForbiddenAddressError):
            addresses.check(address, "prom")


def test_an_allowed_form_of_an_address_suffices():
    addresses = AddressFilter(("64:ff9b::/96",))
    addresses.check("64:ff9b::7f00:1", "prom")
    with pytest.raises(ForbiddenAddressError):
        addresses.check("127.0.0.1", "prom")


@pytest.mark.parametrize("address", ["10.96.0.1", "::ffff:10.96.0.1", "64:ff9b::a60:1"])
def test_a_denied_address_is_denied_in_all_its_forms(address):
    addresses = AddressFilter(("0.0.0.0/0", "::/0"), ("10.96.0.0/16",))
    assert addresses.refusal(ip_address(address)) == "an address that is denied"
    addresses.check("10.97.0.1", "prom")


@pytest.mark.parametrize("text", ["", "x", "10.0.0.0/33", "10.0.0", "fe80::1%eth0/64/1"])
def test_an_invalid_network_is_an_error(text):
    with pytest.raises(ValueError, match="does not appear to be"):
        parse_networks((text,))


@pytest.mark.parametrize(
    ("url", "where", "address"),
    [
        ("http://prom:9090", "prom:9090", None),
        ("https://prom.example.com", "prom.example.com:443", None),
        ("https://prom.example.com./base/", "prom.example.com.:443", None),
        ("HTTP://Prom.Example.COM/", "prom.example.com:80", None),
        ("http://prom_1-a.svc/", "prom_1-a.svc:80", None),
        ("http://prom1/", "prom1:80", None),
        ("http://1prom.0x7g/", "1prom.0x7g:80", None),
        ("http://10.1.2.3:1/x", "10.1.2.3:1", "10.1.2.3"),
        ("http://[2001:DB8::1]:9090/", "[2001:db8::1]:9090", "2001:db8::1"),
        ("http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]:80", "::ffff:7f00:1"),
        ("http://bücher.example/", "xn--bcher-kva.example:80", None),
        # As the library that connects reads it, so that what is checked is what is connected to.
        ("http://①②⑦.⓪.⓪.①/", "127.0.0.1:80", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1:80", "127.0.0.1"),
    ],
)
def test_servers_are_read_as_they_are_connected_to(url, where, address):
    parsed = parse_server_url(url)
    assert (host_and_port(parsed), literal_address(parsed)) == (where, address)
    assert describe_server(url) == where


@pytest.mark.parametrize(
    "url",
    [
        *("", "prom", "prom:9090", "//prom", "http:prom", "http:/prom", "http://", "http:///x"),
        *("file:///etc/passwd", "ftp://prom", "gopher://prom", "unix:///run/x", "ws://prom"),
        *("http://user@prom", "http://u:canary@prom/", "http://:canary@prom", "http://@prom"),
        *(
            "http://prom:0",
            "http://prom:65536",
            "http://prom:-1",
            "http://prom:x",
            "http://prom:9 ",
        ),
        # Decimal, octal, hexadecimal, short, long, with a dot behind.
        *("http://2130706433", "http://017700000001", "http://0x7f000001", "http://127.1"),
        *("http://0177.0.0.1", "http://0x7f.0.0.1", "http://127.0.0.01", "http://127.0.0.1."),
        *("http://1.2.3.4.5", "http://127.0.0.256", "http://0x.", "http://a.0x7f", "http://1"),
        *("http://[::1%25eth0]/", "http://[::1%eth0]/", "http://[fe80::1%1]/", "http://[v1.x]/"),
        *(
            "http://127%2e0.0.1",
            "http://pr%6fm",
            "http://[::1",
            "http://::1/",
            "http://[]/",
            "http://[]@",
        ),
        *("http://a b/", "http://a\\b/", "http://a\tb/", "http://a\nb/", "http://a\r\nHost: b"),
        *("http://a..b/", "http://.a/", "http://-a/", "http://a!b/", f"http://{'a' * 64}/"),
        *(f"http://{'a.' * 127}b/", "http://prom?x=1", "http://prom/#x", "http://prom/?"),
        *(f"http://prom/{'x' * 2048}", "http://prom\u2028/", "http://xn--/", "http://\ud800/"),
    ],
)
def test_an_invalid_server_url_is_an_error(url):
    with pytest.raises(BadProviderError) as caught:
        parse_server_url(url)
    assert str(caught.value).isprintable()
    assert "canary" not in str(caught.value)
    assert describe_server(url) == "the server"
