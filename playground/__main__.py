"""``python -m harbourmaster.playground up|down|status --dir DIR``; ``build`` and demos.

Progress goes to stderr and the final export line to stdout, so ``eval "$(... up ...)"`` works.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harbourmaster.playground import demo, tour
from harbourmaster.playground.browser import ensure_axe, ensure_browser, ensure_deno
from harbourmaster.playground.build import (
    CONTROL_PLANE,
    HELM,
    NODE,
    PROMETHEUS,
    ensure,
    ensure_binaries,
    ensure_prometheus,
)
from harbourmaster.playground.commands import OPTIONAL, REQUIRED, Layout
from harbourmaster.playground.control_plane import ControlPlane, shut_down, survey
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.local import print_export, say
from harbourmaster.playground.node.machine import check
from harbourmaster.serving.process import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when what was asked for is so; 1 when not, and for ``status`` of a stopped one."""
    options = _parser().parse_args(arguments)
    try:
        if options.command in {"build", "build-browser", "build-deno", "check-node"}:
            _prepare(options)
            return 0
        if options.command == "demo-evaluation":
            return _demo(demo.run, options.dir, keep=options.keep)
        if options.command == "demo":
            return _demo(tour.run, options.dir, keep=options.keep or sys.stdin.isatty())
        directory: Path = options.dir.absolute()
        if options.command == "up":
            return _up(directory, options.nodes, options.without)
        if options.command == "down":
            return _down(directory)
        return _status(directory)
    except (PlaygroundError, OSError) as error:
        say(f"playground: {failure(error)}")
        return 1
    except KeyboardInterrupt:
        say("playground: interrupted")
        return 130


def _up(directory: Path, nodes: int, without: Sequence[str]) -> int:
    state = survey(directory)
    if state and all(state.values()):
        say(f"the control plane in {directory} is running already")
        print_export(directory)
        return 0
    optional = tuple(name for name in OPTIONAL if name not in without)
    if nodes and "kwok" not in optional:
        raise PlaygroundError("--nodes needs kwok: take it out of --without")
    binaries = ensure_binaries((*REQUIRED, *optional), progress=say)
    say(f"starting {', '.join((*REQUIRED, *optional))}")
    control_plane = ControlPlane(directory, binaries=binaries, optional=optional, detached=True)
    control_plane.start()
    try:
        if nodes:
            say(f"adding {nodes} nodes")
            control_plane.add_nodes(nodes)
    except BaseException:
        control_plane.stop()
        raise
    say(f"ready at {control_plane.server}, logs in {control_plane.layout.logs}")
    print_export(directory)
    return 0


def _down(directory: Path) -> int:
    ended = shut_down(directory)
    if ended:
        say(f"ended {', '.join(ended)}")
    else:
        say(f"no control plane is running in {directory}")
    return 0


def _status(directory: Path) -> int:
    state = survey(directory)
    if not state:
        say(f"no control plane is running in {directory}")
        return 1
    for name, lives in state.items():
        print(f"{name} {'running' if lives else 'ended: see ' + str(Layout(directory).log(name))}")
    return 0 if all(state.values()) else 1


def _demo(run: Callable[..., None], given: Path | None, *, keep: bool) -> int:
    """Run a demo in a folder that goes away again, unless one is given or something fails."""
    directory = (given or Path(tempfile.mkdtemp(prefix="harbourmaster-demo-"))).absolute()
    remove = given is None
    try:
        run(directory, keep=keep, say=lambda line: print(line, flush=True))
    except (PlaygroundError, OSError):
        remove = False
        say(f"the demo failed; logs are below {directory}")
        raise
    finally:
        if remove:
            shutil.rmtree(directory)
    return 0


def _prepare(options: argparse.Namespace) -> None:
    match options.command:
        case "build":
            _build(options.suite)
        case "build-browser":
            ensure_browser(progress=say)
            ensure_axe(progress=say)
        case "build-deno":
            print(ensure_deno(progress=say))
        case _:
            check(Path.cwd(), options.images.absolute())


def _build(suite: str | None) -> None:
    if suite in {None, CONTROL_PLANE.name}:
        ensure_binaries(progress=say)
    if suite in {None, PROMETHEUS.name}:
        for program in PROMETHEUS.targets:
            ensure_prometheus(program, progress=say)
    for optional in (NODE, HELM):
        if suite in {None, optional.name}:
            ensure(optional, progress=say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harbourmaster.playground",
        description="Run a real Kubernetes control plane on this machine.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up", help="build if needed, start, and wait until everything is ready"
    )
    up.add_argument("--nodes", type=_count, default=0, help="kwok nodes to add (default 0)")
    up.add_argument(
        "--without",
        type=_names,
        default=(),
        metavar="NAME,...",
        help="components to omit: scheduler, controller-manager, kwok",
    )
    down = commands.add_parser("down", help="stop it; data stays in the directory")
    build = commands.add_parser("build", help="build the binaries that are not in the cache")
    build.add_argument(
        "suite",
        nargs="?",
        choices=(CONTROL_PLANE.name, NODE.name, PROMETHEUS.name, HELM.name),
        help="build only these (default: all)",
    )
    commands.add_parser(
        "build-browser", help="fetch Chromium and axe-core if they are not in the cache"
    )
    commands.add_parser("build-deno", help="fetch Deno if it is not in the cache; print its path")
    checked = commands.add_parser(
        "check-node", help="exit with 1 if this machine cannot run a real node, and print why"
    )
    checked.add_argument("images", type=Path, help="directory with the image archives")
    status = commands.add_parser(
        "status", help="print what is running; exit with 1 if something is not"
    )
    for name, text, otherwise in (
        (
            "demo",
            "show all capabilities: gates, policies, placement, rescheduling, the dashboard",
            "; the default in a terminal",
        ),
        (
            "demo-evaluation",
            "show an evaluation with a real Prometheus that fails, then succeeds",
            "",
        ),
    ):
        shown = commands.add_parser(name, help=text)
        shown.add_argument(
            "--keep", action="store_true", help=f"keep running until Ctrl-C{otherwise}"
        )
        shown.add_argument(
            "--dir", type=Path, help="directory for all files; by default a temporary one"
        )
    for command in (up, down, status):
        command.add_argument(
            "--dir", type=Path, required=True, help="directory of the control plane"
        )
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return count


def _names(text: str) -> tuple[str, ...]:
    """Accept the components' names with or without ``kube-``."""
    known = {name.removeprefix("kube-"): name for name in OPTIONAL}
    names = []
    for given in filter(None, text.split(",")):
        name = known.get(given.removeprefix("kube-"))
        if name is None:
            raise argparse.ArgumentTypeError(f"{given} is not one of {', '.join(known)}")
        names.append(name)
    return tuple(names)


if __name__ == "__main__":
    sys.exit(main())
