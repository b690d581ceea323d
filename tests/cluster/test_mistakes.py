"""What users get wrong: the first place where they look reports it, and the printed step ends it.

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
correct    pairs of old and new text: what the user corrects in the objects, with the other groups
           of the step in braces; they are applied again, or edited by a printed ``kubectl edit``
fixed      a command, and what it ``says`` or ``lacks`` in the end
fault      why the product does not do this yet
gate       true: the test belongs to each change
========== =====================================================================================
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from harbourmaster.playground.capabilities import overlay
from helpers.doctor.deployed_installation import DeployedInstallation
from helpers.patience import PATIENCE, WAIT
from helpers.planes import plane_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FILES = sorted((Path(__file__).parents[1] / "mistakes").glob("*.yaml"))
GATED = "{.metadata.labels.gates\\.harbourmaster\\.dev/enabled}"
APPLY = "kubectl apply -f -"


def read(file):
    """What a file says of the mistake, and the text that the user applies."""
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
def installed(request, tmp_path_factory):
    """An installation with every capability that a user can get wrong."""
    with plane_for(request, tmp_path_factory, "mistakes") as plane:
        plane.add_nodes(2)
        folder = overlay(tmp_path_factory.mktemp("overlay"), ("placement", "rescheduling"))
        with DeployedInstallation(plane, folder) as found:
            plane.restart("kube-controller-manager")
            yield found


class User:
    """Runs commands in a shell: the user's own in the namespace of the mistake."""

    def __init__(self, plane, folder, namespace, patience):
        self._plane, self._folder = plane, folder
        self._namespace, self._patience = namespace, patience
        self.printed = ""

    def run(self, command, *, namespace="", editor="false", stdin=""):
        """Return the exit code, and what was printed to both streams."""
        config = yaml.safe_load(self._plane.kubeconfig.read_text())
        for each in config["contexts"]:
            each["context"]["namespace"] = namespace or self._namespace
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

    def do(self, commands, **options):
        """Run what the user runs, and keep what is printed, also of refusals."""
        self.printed += self.run(commands, **options)[1]

    def until_told(self, place):
        """Wait until a place says what it must, or does not say what it ``lacks``."""
        is_absent = "lacks" in place
        pattern = re.compile(place["lacks" if is_absent else "says"], re.MULTILINE)
        deadline = time.monotonic() + (self._patience if "in" in place else 0)
        while True:
            code, text = self.run(place["in"]) if "in" in place else (0, self.printed)
            found = pattern.search(text)
            if is_absent != bool(found) and not (is_absent and code):
                return found
            assert time.monotonic() < deadline, f"not as in {place}:\n{text}"

    def editor(self, pairs):
        """A program for ``kubectl edit`` that replaces text."""
        file = self._folder / "editor.py"
        lines = (
            "import pathlib, sys",
            "file = pathlib.Path(sys.argv[1])",
            "text = file.read_text()",
            f"for old, new in {pairs!r}:",
            "    text = text.replace(old, new)",
            "file.write_text(text)",
        )
        file.write_text("\n".join(lines))
        return f"{sys.executable} {file}"


@pytest.mark.parametrize("file", cases())
def test_a_mistake_is_reported_and_its_printed_step_ends_it(installed, tmp_path, file):
    mistake, objects = read(file)
    patience = PATIENCE / 9 if "fault" in mistake else PATIENCE
    user = User(installed.plane, tmp_path, file.stem, patience)
    metadata = {"name": file.stem}
    if mistake.get("gates", True):
        metadata["annotations"] = {OPT_IN_KEY: OPT_IN}
    kubectl = installed.kubectl
    kubectl(
        "create",
        "--save-config",
        "-f=-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
    )
    try:
        kubectl("wait", "--for=create", "serviceaccount/default", f"-n={file.stem}", WAIT)
        if "annotations" in metadata:
            kubectl("wait", f"--for=jsonpath={GATED}=true", f"namespace/{file.stem}", WAIT)
        live(user, mistake, objects)
    finally:
        user.run("kubectl delete --wait=false --ignore-not-found -f -", stdin=objects)
        user.run(f"kubectl delete namespace --wait=false {file.stem}")


def live(user, mistake, objects):
    """Make the mistake, see what is told of it, and do what is printed."""
    user.do(APPLY, stdin=objects)
    user.do(mistake.get("after", ":"))
    user.until_told(mistake["first"])
    code, text = user.run("harbourmaster doctor")
    assert code == mistake["doctor"]["exit"], text
    assert re.search(mistake["doctor"].get("says", ""), text), text
    step = user.until_told(mistake["step"]).groupdict()
    pairs = [(old, new.format(**step)) for old, new in mistake.get("correct", ())]
    if command := step.get("run"):
        # Pasted into a shell whose context has another namespace.
        code, text = user.run(command, namespace="default", editor=user.editor(pairs))
        assert code == 0, f"{command}: {text}"
    else:
        assert pairs
        for old, new in pairs:
            assert old in objects
            objects = objects.replace(old, new)
        code, text = user.run(APPLY, stdin=objects)
        assert code == 0, text
    user.until_told(mistake["fixed"])
