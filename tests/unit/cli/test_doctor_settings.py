"""The settings of a Deployment: its flags, and the file of a ConfigMap."""

from __future__ import annotations

import msgspec
import pytest

from cli.doctor.objects import Deployment
from cli.doctor.settings import UnknownSettingsError, config_path, read_settings
from controller.settings import ControllerSettings

FILES = {"ours": {"a.yaml": "webhook: {timeoutSeconds: 7}", "bad.yaml": "webhook: 1"}}


def deployment(*flags, mount="/etc/ours", **config_map):
    container = {
        "image": "harbourmaster",
        "args": ["controller", *flags],
        "volumeMounts": [
            {"name": "other", "mountPath": "/other"},
            {"name": "v", "mountPath": mount},
        ],
    }
    if "sub_path" in config_map:
        container["volumeMounts"][1]["subPath"] = config_map.pop("sub_path")
    volumes = [{"name": "v", "configMap": {"name": "ours", **config_map}}, {"name": "other"}]
    spec = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    return msgspec.convert({"metadata": {"name": "d"}, "spec": spec}, Deployment)


def timeout(found):
    return read_settings(found, ControllerSettings, FILES).webhook.timeout_seconds


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (deployment(), 3),
        (deployment("--host=0.0.0.0", "--webhook-timeout-seconds=5"), 5),
        (deployment("--webhook-timeout-seconds", "6"), 6),
        (deployment("--config=/etc/ours/a.yaml"), 7),
        (deployment("--config", "/etc/ours/a.yaml", "--host=0.0.0.0"), 7),
        (deployment("--config=/etc/ours/a.yaml", "--webhook-timeout-seconds=8"), 8),
        (deployment("--config=/etc/ours/b.yaml", items=[{"key": "a.yaml", "path": "b.yaml"}]), 7),
        (deployment("--config=/a", mount="/a", sub_path="a.yaml"), 7),
    ],
    ids=range(8),
)
def test_flags_and_files(found, seconds):
    assert timeout(found) == seconds


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (deployment("--nonsense=1"), "unrecognized arguments: --nonsense=1"),
        (deployment("--webhook-timeout-seconds=soon"), "--webhook-timeout-seconds: "),
        (deployment("--config=/etc/ours/bad.yaml"), "webhook: "),
        (deployment("--config=/elsewhere/a.yaml"), "/elsewhere/a.yaml is mounted from no"),
        (deployment("--config=/etc/ours/none.yaml"), "/etc/ours/none.yaml is mounted from no"),
    ],
    ids=range(5),
)
def test_what_can_t_be_used_says_so(found, text):
    with pytest.raises(UnknownSettingsError) as error:
        timeout(found)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_the_last_file_counts():
    assert config_path(["--config=a", "--config", "b"]) == "b"
    assert config_path(["--config"]) is None
