"""Each step that ``why`` prints helps: it runs as it is printed, and changes or shows something.

The processes run outside of the cluster, as by ``local up``. All causes are made at once, each in a
namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
from functools import partial

import pytest

from harbourmaster.api.resources import NAMESPACES, SERVICE_ACCOUNTS, of_kind
from harbourmaster.cli.main import main
from harbourmaster.cli.why.sections import scheduling
from harbourmaster.playground import api
from helpers.flow.manifests import RESOURCES
from helpers.patience import PATIENCE
from helpers.step_causes import CAUSES, OPT_IN, TAINTED, in_namespace, is_counted
from helpers.steps import commands_in, run_in_shell

RESOURCE_QUOTAS = of_kind("", "ResourceQuota")
PROVIDERS = "step-providers"
TAINT = {"key": "example.com/pool", "value": "till", "effect": "NoSchedule"}


def space_of(code):
    return f"step-{code}"


def until(plane, resource, namespace, is_right):
    """Wait until an object of a kind is so; return it."""
    path = f"{resource.path(namespace)}?watch=true&timeoutSeconds={PATIENCE:.0f}"
    with contextlib.closing(api.watch(plane.port, plane.admin, path, PATIENCE)) as events:
        for line in events:
            event = json.loads(line)
            if event["type"] in {"ADDED", "MODIFIED"} and is_right(event["object"]):
                return event["object"]
    raise AssertionError(f"no {resource.plural} of {namespace} is so")


def create(plane, objects):
    """Create all objects by one command."""
    whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    plane.kubectl("create", "-f=-", stdin=json.dumps(whole))


def namespaces_for(codes):
    """The namespaces of causes, and what must be there before them."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROVIDERS}}
    for code in codes:
        cause = CAUSES[code]
        annotations = {**({OPT_IN: "enabled"} if cause.gates else {}), **cause.annotations}
        metadata = {"name": space_of(code), "labels": cause.labels, "annotations": annotations}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        yield from (in_namespace(space_of(code), obj) for obj in cause.at_first)


def is_ready(name, space):
    """Whether it is the namespace of this name, which the webhook selects if it wants gates."""
    labels, annotations = space["metadata"]["labels"], space["metadata"].get("annotations", {})
    is_asked = annotations.get(OPT_IN) == "enabled"
    is_selected = labels.get("gates.harbourmaster.dev/enabled") == "true"
    return space["metadata"]["name"] == name and (is_selected or not is_asked)


@contextlib.contextmanager
def all_causes(plane, codes):
    """Make the causes of these codes at once."""
    provider = RESOURCES["KeptnMetricsProvider"]
    spec = {"type": "prometheus", "targetServer": "http://prometheus.example.com"}
    metadata = {"name": "prom", "namespace": PROVIDERS}
    common = {"apiVersion": provider.api_version, "kind": provider.kind}
    (node,) = api.create_nodes(plane.port, plane.admin, 1, {"example.com/only": TAINTED})
    plane.kubectl("taint", "node", node, "example.com/pool=till:NoSchedule")
    create(plane, namespaces_for(codes))
    try:
        for code in codes:
            until(plane, SERVICE_ACCOUNTS, space_of(code), bool)
            if CAUSES[code].at_first:
                until(plane, RESOURCE_QUOTAS, space_of(code), is_counted)
        for code in codes:
            name = space_of(code)
            until(plane, NAMESPACES, None, partial(is_ready, name))
        objects = [
            in_namespace(space_of(code), obj) for code in codes for obj in CAUSES[code].objects
        ]
        create(plane, [{**common, "metadata": metadata, "spec": spec}, *objects])
        yield plane
    finally:
        plane.kubectl("delete", "node", node)
        names = [PROVIDERS, *map(space_of, codes)]
        plane.kubectl("delete", "namespace", "--wait=false", "--ignore-not-found", *names)


@pytest.fixture(scope="module")
def plane(request, harbour):
    """The control plane with the causes of all tests that were chosen."""
    items = [item for item in request.session.items if item.path == request.path]
    with all_causes(harbour.plane, [item.callspec.params["code"] for item in items]) as plane:
        yield plane


class User:
    """Asks why in one namespace, and pastes what is printed."""

    def __init__(self, plane, code, folder, read):
        self._plane, self._code, self._folder, self._read = plane, code, folder, read
        self.namespace = space_of(code)
        self.file = folder / "manifest.json"

    def about(self):
        about = CAUSES[self._code].about
        if about == "-f":
            return ["-f", str(self.file)]
        kind, _, name = about.partition("/")
        name = (
            name or until(self._plane, RESOURCES["Pod"], self.namespace, bool)["metadata"]["name"]
        )
        return [kind, f"{self.namespace}/{name}"]

    def why(self):
        """The steps by the codes of all sections."""
        self._read()
        assert (
            main(["why", *self.about(), "-o=json", f"--kubeconfig={self._plane.kubeconfig}"]) == 0
        )
        sections = json.loads(self._read().out)["sections"]
        return {
            section["code"]: section["next"] for section in sections if section["state"] != "fine"
        }

    def until(self, event):
        return until(self._plane, event.resource, self.namespace, event.is_right)

    def paste(self, command, editor=()):
        kubeconfig = self._plane.kubeconfig
        code, text = run_in_shell(command, kubeconfig, editor=editor, folder=self._folder)
        assert code == 0, f"{command}: {text}"
        return text

    def write(self, manifest):
        self.file.write_text(json.dumps(in_namespace(self.namespace, manifest)))


def codes():
    for code, cause in CAUSES.items():
        yield pytest.param(code, marks=pytest.mark.gate if cause.in_gate else pytest.mark.full)


@pytest.mark.parametrize("code", list(codes()))
def test_the_printed_step_helps(plane, tmp_path, capsys, monkeypatch, code):
    cause = CAUSES[code]
    monkeypatch.setattr(scheduling, "SILENT_SECONDS", 0)
    user = User(plane, code, tmp_path, capsys.readouterr)
    if cause.about == "-f":
        user.write(cause.correct[0])
    if cause.ready:
        user.until(cause.ready)
    if cause.after:
        user.paste(cause.after.format(user.namespace))
    if cause.changed:
        user.until(cause.changed)
    steps = user.why()
    assert code in steps, steps
    step = steps[code]
    chosen = commands_in(step.partition("; to release it")[0]) or commands_in(step)
    assert chosen, step
    if cause.about == "-f":
        user.write(cause.correct[-1])
    else:
        for manifest in cause.correct:
            user.write(manifest)
            user.paste(f"kubectl apply -f {user.file}")
    printed = "\n".join(user.paste(command, cause.editor) for command in chosen)
    assert re.search(cause.says, printed), (step, printed)
    if cause.then:
        user.until(cause.then)
    if cause.code is not None:
        after = user.why()
        assert code not in after, after
        assert not cause.code or cause.code in after, after
