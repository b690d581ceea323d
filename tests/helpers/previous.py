"""The release before this one, packed by today's release script from the commit that it was."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from helpers.manifests import ROOT
from helpers.manifests import VERSION as CURRENT
from helpers.wheels import clean

VERSION = "0.1.0"
COMMIT = "d89dcdb54953cab37e034ab788b4c35d64bffdb4"
KEPT = {
    "0.1.0": {
        ("list", "lifecycle.keptn.sh", "keptnappcontexts"),
        ("watch", "lifecycle.keptn.sh", "keptnappcontexts"),
    }
}
"""Rights of the controller that only the release before uses, by its version."""
REPOSITORY = "registry.example.com/harbourmaster"
PACKERS = (".dockerignore", "Dockerfile", "Makefile", "deploy/image", "deploy/release.py")
PACKERS = (*PACKERS, "deploy/sbom.py")
"""The files that pack; everything packed is of the commit."""


class Release(NamedTuple):
    """A folder ``dist`` as ``make release`` leaves it, without the chart."""

    dist: Path

    @property
    def image(self):
        """The archive of the image."""
        return self.dist / f"harbourmaster-{VERSION}-image.tar"

    @property
    def manifests(self):
        """The path of install.yaml, which names the image by its digest."""
        return self.dist / "install.yaml"


def pack(directory):
    """Pack the release on a base of Debian's packages; functions run in today's images."""
    tree = directory / f"harbourmaster-{VERSION}"
    run(ROOT, "git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree))
    run(tree, "git", "checkout", "--quiet", COMMIT)
    for name in PACKERS:
        source, target = ROOT / name, tree / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    run(tree, "git", "add", "--all")
    author = ("-c", "user.name=packer", "-c", "user.email=packer@example.com")
    run(tree, "git", *author, "commit", "--quiet", "--message=release: pack")
    (tree / ".venv").mkdir()
    (tree / ".venv/installed").touch()
    make = ("make", "--no-print-directory", f"BIN={Path(sys.executable).parent}")
    base = run(tree, *make, "base-image").split()[-1]
    given = [f"IMG={REPOSITORY}", f"PYTHON_IMAGE={base}", "BUILDER=https://example.com"]
    given += [
        f"{name.upper()}_RUNNER=registry.example.com/harbourmaster-{name}:{CURRENT}"
        for name in ("python", "deno")
    ]
    run(tree, *make, "image", f"IMG={REPOSITORY}:{VERSION}", f"PYTHON_IMAGE={base}")
    run(tree, sys.executable, "deploy/release.py", "pack", *given)
    return Release(tree / "dist")


def run(folder, *command):
    """Run a command that must succeed; return what it printed."""
    result = subprocess.run(
        command, cwd=folder, env=clean(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout
