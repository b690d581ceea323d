"""The settings of a Deployment: its flags, and the file of a ConfigMap."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import CONFIG_MAPS, DEPLOYMENTS
from harbourmaster.cli.live.installation import UnknownSettingsError, running_settings
from harbourmaster.controller.settings import ControllerSettings

FILES = {"ours": {"a.yaml": "webhook: {timeoutSeconds: 7}", "bad.yaml": "webhook: 1"}}


FILE = "/etc/ours/a.yaml"
IN_FOLDER = {"key": "a.yaml", "path": "in/x.yaml"}
PROXY = {"image": "proxy", "args": ["--webhook-timeout-seconds=9"]}


def deployment(*flags, mount="/etc/ours", before=None, is_command=False, more=(), **config_map):
    container = {
        "image": "harbourmaster",
        "args": ["controller", *flags],
        "volumeMounts": [
            {"name": "other", "mountPath": "/other"},
            {"name": "v", "mountPath": mount},
            *more,
        ],
    }
    if is_command:
        container["command"] = ["harbourmaster", *container.pop("args")]
    if "sub_path" in config_map:
        container["volumeMounts"][1]["subPath"] = config_map.pop("sub_path")
    volumes = [{"name": "v", "configMap": {"name": "ours", **config_map}}, {"name": "other"}]
    containers = [container] if before is None else [before, container]
    spec = {"template": {"spec": {"containers": containers, "volumes": volumes}}}
    return {"metadata": {"name": "d"}, "spec": spec}


async def timeout(given):
    async def find(resource, name, namespace):
        assert namespace == "home"
        if resource == DEPLOYMENTS:
            return msgspec.json.encode(given)
        assert resource == CONFIG_MAPS
        return msgspec.json.encode({"data": FILES[name]}) if name in FILES else None

    settings = await running_settings(find, "home", "d", ControllerSettings)
    return settings.webhook.timeout_seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (deployment(), 3),
        (deployment("--host=0.0.0.0", "--webhook-timeout-seconds=5"), 5),
        (deployment("--webhook-timeout-seconds", "6"), 6),
        (deployment("--config=/etc/ours/a.yaml"), 7),
        (deployment("--config", "/etc/ours/a.yaml", "--host=0.0.0.0"), 7),
        (deployment("--config=/etc/ours/a.yaml", "--webhook-timeout-seconds=8"), 8),
        (deployment("--config=/etc/ours/b.yaml", items=[{"key": "a.yaml", "path": "b.yaml"}]), 7),
        (deployment("--config=/a", mount="/a", sub_path="a.yaml"), 7),
        (deployment("--config=/a/x.yaml", mount="/a", sub_path="in", items=[IN_FOLDER]), 7),
        (deployment("--config=/etc/ours/in/x.yaml", items=[IN_FOLDER]), 7),
        (deployment("--config=/etc/ours/a.yaml", before=PROXY), 7),
        (deployment("--config=/etc/ours/a.yaml", before=PROXY, is_command=True), 7),
        (deployment("--config=/etc/ours/a.yaml", more=[{"name": "s", "mountPath": "/etc"}]), 7),
        (deployment("--config=/etc/ours/bad.yaml", "--config", "/etc/ours/a.yaml"), 7),
    ],
    ids=range(14),
)
async def test_flags_and_files(given, seconds):
    assert await timeout(given) == seconds


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (deployment("--nonsense=1"), "unrecognized arguments: --nonsense=1"),
        (deployment("--webhook-timeout-seconds=soon"), "--webhook-timeout-seconds: "),
        (deployment("--config=/etc/ours/bad.yaml"), "webhook: "),
        (deployment("--config=/elsewhere/a.yaml"), "/elsewhere/a.yaml is mounted from no"),
        (deployment("--config=/etc/ours/none.yaml"), "the ConfigMap ours has no key none.yaml"),
        (deployment("--config=/etc/ours/a.yaml", name="gone"), "there is no ConfigMap gone"),
        (deployment("--config=/etc/ours/a.yaml", items=[IN_FOLDER]), "/etc/ours/a.yaml is mounted"),
        (
            deployment("--config=/etc/ours/a.yaml", more=[{"name": "s", "mountPath": FILE}]),
            "/etc/ours/a.yaml is mounted from no",
        ),
        (deployment("--config"), "--config: expected one argument"),
    ],
    ids=range(9),
)
async def test_what_can_t_be_used_says_so(given, text):
    with pytest.raises(UnknownSettingsError) as error:
        await timeout(given)
    assert text in str(error.value)
    assert "\n" not in str(error.value)
