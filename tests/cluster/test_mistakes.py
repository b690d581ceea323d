"""Mistakes of users: the first place where they look reports each, and the printed step ends it.

Each file of tests/mistakes is one mistake: a document that describes it, then what the user
applies. The namespace has the name of the file. The keys of the first document:

========== =====================================================================================
title      what the user does
gates      false: the namespace does not request gates
after      shell commands after that, for example the change that is the mistake
first      the first place that reports it, and what it ``says``, a pattern; ``in`` is a command,
           or without one, what the commands of the user printed
doctor     the exit code of ``harbourmaster doctor``, and what it ``says``
step       where the next step is printed, as above; the group ``run`` of the pattern is executed
correct    pairs of old and new text, with the groups of the step in braces: what the user
           corrects in the objects and applies again, or in the editor of a printed command
fixed      a command, and what it ``says`` or ``lacks`` in the end
fault      why the product does not do this yet
gate       true: the test belongs to each change
========== =====================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from harbourmaster.playground.capabilities import overlay
from helpers.cluster import plane_for
from helpers.command import kubectl_of
from helpers.doctor.deployed_installation import DeployedInstallation
from helpers.patience import PATIENCE, WAIT

FILES = sorted((Path(__file__).parents[1] / "mistakes").glob("*.yaml"))
GATED = "{.metadata.labels.gates\\.harbourmaster\\.dev/enabled}"


def read(file):
    """The description of the mistake in a file, and the text that the user applies."""
    mistake, _, objects = file.read_text().partition("\n---\n")
    return yaml.safe_load(mistake), objects


def cases():
    for file in FILES:
        mistake, _ = read(file)
        marks = [pytest.mark.gate if mistake.get("gate") else pytest.mark.full]
        if fault := mistake.get("fault"):
            marks.append(pytest.mark.xfail(strict=True, reason=fault, raises=AssertionError))
        yield pytest.param(file, id=file.stem, marks=marks)


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """The kubeconfig of an installation with every capability that a user can get wrong.

    The mistakes of the gate need none but those of ``local up``.
    """
    if request.config.option.gate:
        folder, up = request.getfixturevalue("local_up")
        assert up.returncode == 0, up.stderr
        yield folder / "kubeconfig"
        return
    with plane_for(request, tmp_path_factory, "mistakes") as plane:
        plane.add_nodes(2)
        folder = overlay(tmp_path_factory.mktemp("overlay"), ("placement", "rescheduling"))
        with DeployedInstallation(plane, folder):
            yield plane.kubeconfig


class User:
    """Runs commands in a shell: the user's own in the namespace of the mistake."""

    def __init__(self, kubeconfig, folder, namespace, patience):
        self._kubeconfig, self._folder = kubeconfig, folder
        self._namespace, self._patience = namespace, patience
        self.printed = self.applied = ""

    def run(self, command, *, namespace="", stdin="", editor="false"):
        """Return the exit code, and what was printed to both streams."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace or self._namespace
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        programs = Path(sys.executable).parent, Path(find_kubectl(ensure_binaries())).parent
        given = {
            "PATH": ":".join((*map(str, programs), os.environ["PATH"])),
            "KUBECONFIG": str(kubeconfig),
            "KUBE_EDITOR": editor,
        }
        done = subprocess.run(
            ["bash", "-c", command],
            env={**os.environ, **given},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=2 * PATIENCE,
        )
        return done.returncode, done.stdout

    def apply(self, objects):
        """Apply manifests, and keep what is printed; return the exit code."""
        self.applied = objects
        code, text = self.run("kubectl apply -f -", stdin=objects)
        self.printed += text
        return code

    def until_told(self, place):
        """Wait until a place says what it must, or does not say what it ``lacks``."""
        is_absent = "lacks" in place
        pattern = re.compile(place["lacks" if is_absent else "says"], re.MULTILINE)
        deadline = time.monotonic() + (self._patience if "in" in place else 0)
        while True:
            code, text = self.run(place["in"]) if "in" in place else (0, self.printed)
            match = pattern.search(text)
            if is_absent != bool(match) and not (is_absent and code):
                return match
            assert time.monotonic() < deadline, f"not as in {place}:\n{text}"


def editor_of(pairs, folder):
    """A program for ``kubectl edit`` that replaces text."""
    file = folder / "editor.sh"
    lines = (f"sed --in-place {shlex.quote(f's|{old}|{new}|')} $1" for old, new in pairs)
    file.write_text("\n".join(lines))
    return f"bash {file}"


@contextlib.contextmanager
def namespace(user, kubectl, name, *, has_gates):
    """The namespace of a user, in which pods can be created; all that is applied goes with it."""
    metadata = {"name": name, "annotations": {OPT_IN_KEY: OPT_IN} if has_gates else {}}
    text = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    kubectl("create", "--save-config", "-f=-", stdin=text)
    try:
        kubectl("wait", "--for=create", "serviceaccount/default", f"-n={name}", WAIT)
        if has_gates:
            kubectl("wait", f"--for=jsonpath={GATED}=true", f"namespace/{name}", WAIT)
        yield
    finally:
        user.run("kubectl delete --wait=false --ignore-not-found -f -", stdin=user.applied)
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.mark.parametrize("file", list(cases()))
def test_a_mistake_is_reported_and_its_printed_step_ends_it(cluster, tmp_path, file):
    mistake, objects = read(file)
    patience = PATIENCE / 9 if "fault" in mistake else PATIENCE
    user = User(cluster, tmp_path, file.stem, patience)
    has_gates = mistake.get("gates", True)
    with namespace(user, kubectl_of(cluster), file.stem, has_gates=has_gates):
        user.apply(objects)
        user.printed += user.run(mistake.get("after", ":"))[1]
        user.until_told(mistake["first"])
        code, text = user.run("harbourmaster doctor")
        assert code == mistake["doctor"]["exit"], text
        assert re.search(mistake["doctor"].get("says", ""), text), text
        step = user.until_told(mistake["step"]).groupdict()
        pairs = [(old, new.format(**step)) for old, new in mistake.get("correct", ())]
        if command := step.get("run"):
            # Pasted into a shell whose context has another namespace.
            editor = editor_of(pairs, tmp_path)
            code, text = user.run(command, namespace="default", editor=editor)
            assert code == 0, f"{command}: {text}"
        else:
            for old, new in pairs:
                assert old in objects
                objects = objects.replace(old, new)
            assert user.apply(objects) == 0, user.printed
        user.until_told(mistake["fixed"])
