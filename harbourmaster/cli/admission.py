"""The arguments of commands that admit pods, in a server and without one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.arguments import (
    DEFAULT_NAMESPACE,
    add_checked,
    add_connection,
    add_flags,
    add_installation,
    add_lines,
    add_manifests,
    add_output,
    add_path,
    add_several,
    add_sources,
    duration,
    set_command,
)
from harbourmaster.registration.settings import RegistrationSettings
from harbourmaster.webhook.settings import AdmissionSettings, Settings, WebhookSettings

if TYPE_CHECKING:
    from argparse import ArgumentParser

set_admission: Final = partial(set_command, settings=AdmissionSettings, of_file=WebhookSettings)
"""Sets a command that admits as the webhook does."""


def add_server_files(serve: ArgumentParser) -> None:
    """Add the arguments of ``server files``."""
    set_command(serve, run="harbourmaster.webhook.standalone:serve", settings=Settings)
    add_sources(serve)
    text = "send the AdmissionReview in FILE to the running server and print the answer"
    add_path(serve, "--try", "FILE", text, dest="example")


def add_server_webhook(webhook: ArgumentParser) -> None:
    """Add the arguments of ``server webhook``."""
    set_command(webhook, run="harbourmaster.webhook.process:run", settings=WebhookSettings)


def add_render(render: ArgumentParser) -> None:
    """Add the arguments of ``render``."""
    set_admission(render, run="offline:render")
    add_sources(render)
    add_manifests(render, "--filename", "manifests", "manifests to render", required=True)
    add_flags(
        render,
        diff="print only the differences",
        patch="print only the changes, as operations of JSON Patch",
    )


def add_check_manifests(check: ArgumentParser) -> None:
    """Add the arguments of ``check manifests``."""
    set_admission(check, run="checking:validate")
    check.add_argument("-k", "--kustomize", metavar="DIR", help="check an overlay, too")
    add_checked(check)


def add_check_tests(tests: ArgumentParser) -> None:
    """Add the arguments of ``check tests``."""
    set_admission(tests, run="checking:test")
    add_flags(tests, update="correct what the files expect")
    text = "test only this object, as in expect"
    tests.add_argument("--case", metavar='"KIND [NAMESPACE/]NAME"', help=text)
    add_checked(tests)


def add_replay(replay: ArgumentParser) -> None:
    """Add the arguments of ``replay``."""
    set_admission(replay, run="offline:replay")
    add_sources(replay, required=False)
    add_lines(replay)
    text = "print only cases whose answer differs from the recorded one, and exit with 1 if there"
    add_flags(replay, check=f"{text} are any")
    text = "output format; text shows patches as operations [text on a terminal, otherwise json]"
    replay.add_argument("-o", "--output", choices=("text", "json"), help=text)


STEPS: Final = ("policies", "probe", "final")
_COMPILE_EXAMPLES: Final = """examples:
  harbourmaster compile apply
  harbourmaster compile --cluster --step policies | kubectl apply -f -
  harbourmaster compile --cluster --step probe | kubectl apply -f -
  harbourmaster compile --cluster --try
  harbourmaster compile --cluster --step final | kubectl apply -f -
  harbourmaster compile -f policies/ > compiled.yaml
"""


def add_compile(parser: ArgumentParser) -> None:
    """Add the arguments of ``compile``."""
    set_admission(parser, run="compile.run:compile_policies", examples=_COMPILE_EXAMPLES)
    text = "apply the objects for the policies of the cluster: all steps, with the waits in between"
    parser.add_argument("action", nargs="?", choices=("apply",), metavar="apply", help=text)
    add_manifests(parser, "--filename", "policies", "all policies of a cluster")
    add_flags(parser, cluster="compile the policies of a live cluster, with its settings")
    parser.add_argument("--step", choices=STEPS, help="print the objects of one step [all]")
    text = "namespaces whose PodSchedulingPolicies may be compiled, too"
    parser.add_argument("--policy-namespaces", default="", metavar="A,B,...", help=f"{text} [none]")
    text = (
        "create objects by dry run in the namespace of the step probe, and compare them with ours"
    )
    parser.add_argument("--try", dest="tries", action="store_true", help=text)
    add_flags(parser, dry_run="with apply: only send dry runs, so that nothing is stored")
    text = "with apply: time limit for the API server to enforce what is tried [1m]"
    parser.add_argument("--timeout", type=duration, default=60.0, metavar="DURATION", help=text)
    add_installation(parser)


EXCLUDED: Final = (*RegistrationSettings().excluded_namespaces, DEFAULT_NAMESPACE)
DUMPED_KINDS: Final = (
    "pods,nodes,namespaces,deployments,statefulsets,daemonsets,replicasets,"
    "replicationcontrollers,jobs,cronjobs,"
    "clusterpodschedulingpolicies,podschedulingpolicies"
)
"""The kinds that a dump should contain."""
_PREVIEW_EXAMPLES: Final = f"""examples:
  harbourmaster preview -f new-policy.yaml --cluster
  harbourmaster preview --delete shop/old-policy --cluster
  kubectl get --all-namespaces -o json {DUMPED_KINDS} > dump.json
  harbourmaster preview -f policies/ --all --dump dump.json --fail-on unschedulable -o markdown
"""


def add_preview(preview: ArgumentParser) -> None:
    """Add the arguments of ``preview``."""
    set_admission(preview, run="preview.run:preview", examples=_PREVIEW_EXAMPLES)
    add_manifests(preview, "--filename", "policies", "policies to add, or to replace by name")
    text = "policy to delete; can be repeated"
    add_several(preview, "--delete", metavar="[NAMESPACE/]NAME", help=text)
    add_flags(preview, all="-f contains all policies: delete all others")
    source = preview.add_mutually_exclusive_group(required=True)
    add_flags(source, cluster="compare with a live cluster")
    text = "compare with the output of kubectl get -o json (or yaml)"
    add_path(source, "--dump", "FILE|-", text)
    text = "policies to compare with, instead of those of the cluster or the dump"
    add_path(preview, "--policies-now", "FILE|DIR", text)
    text = "exit with 1 if any workload changes, or if pods would no longer fit any node"
    add_several(preview, "--fail-on", choices=("changed", "unschedulable"), help=text)
    preview.add_argument(
        "--excluded-namespaces",
        default=",".join(EXCLUDED),
        metavar="A,B,...",
        help=f"namespaces that the webhook is not registered for [{','.join(EXCLUDED)}]",
    )
    more = "; use markdown for comments on pull requests"
    add_output(preview, "text", "json", "markdown", more=more)
    add_connection(preview)
