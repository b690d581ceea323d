"""Listen addresses are checked before anything else of a start."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.dashboard.settings import DashboardSettings
from harbourmaster.serving.settings import HealthSettings

KEYS = {HealthSettings: "host", DashboardSettings: "host", SchedulerSettings: "extenderHost"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::", "::1", "fe80::1%eth0", "localhost", "Node-1.example"]
)
def test_an_address_or_a_name_is_a_listen_address(host):
    assert msgspec.convert({"host": host}, HealthSettings).host == host


@pytest.mark.parametrize(
    "host", ["", " ", "*", "[::1]", ":8080", "1.2.3.4:80", "10.0.0.0/8", "a b"]
)
@pytest.mark.parametrize("settings", KEYS)
def test_anything_else_is_an_error_of_one_line(host, settings):
    key = KEYS[settings]
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({key: host}, settings)
    assert str(caught.value) == (
        f'{key}: invalid address "{host}": write an IP address without brackets, such as ::1, or '
        ":: for all addresses"
    )
