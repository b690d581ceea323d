"""Every code that ``why`` can give has a next step that can be pasted."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from harbourmaster.cli import why
from harbourmaster.cli.main import create_parser
from harbourmaster.cli.why import render
from harbourmaster.cli.why.model import Report, Section, State, Subject
from harbourmaster.cli.why.render import NOTHING, STEPS, step_of
from harbourmaster.gates import mistakes
from harbourmaster.lifecycle.gate_verdict import Code
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.explanations import NAMESPACE, pod, put_owner, reference, template
from helpers.steps import commands_in

CODE = re.compile(r"[a-z]+(-[a-z]+)*")
STATES = get_args(State)


def constants(node):
    """The texts that an expression may give."""
    if isinstance(node, ast.IfExp):
        return {*constants(node.body), *constants(node.orelse)}
    if isinstance(node, ast.BoolOp):
        return set().union(*map(constants, node.values))
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return {node.value} if is_text else set()


def written(path):
    """The codes in a module: arguments, mistakes, and tuples of a code, a state and more."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "code":
            yield from constants(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mistake":
            yield from constants(node.args[0])
        elif isinstance(node, ast.Tuple) and len(node.elts) >= len(("code", "state")):
            first, second, *_ = node.elts
            if all(constants(element) & set(STATES) for element in node.elts):
                continue
            if constants(second) & set(STATES) or getattr(second, "id", "") == "state":
                yield from constants(first)


MODULES = (*Path(why.__file__).parent.rglob("*.py"), Path(mistakes.__file__))
WRITTEN = {code for path in MODULES for code in written(path)}
EMITTED = {*WRITTEN, *get_args(Code), *OUTCOMES} - {""}


def test_every_code_has_a_step_and_every_step_a_code():
    assert len(EMITTED) > 40
    assert {code for code in EMITTED if not STEPS.get(code)} == set()
    assert set(STEPS) - EMITTED == set()
    assert all(map(CODE.fullmatch, STEPS))
    codes = [code for step in render._STEPS for code in step.split()]
    assert len(codes) == len(set(codes))


def subject(kind, name, api_version="apps/v1"):
    return Subject(api_version, kind, NAMESPACE, name, b"{}")


@pytest.mark.parametrize("code", sorted(STEPS))
def test_a_step_names_the_object_and_its_workload(code):
    owners = (subject("ReplicaSet", "cart-7c9"), subject("Deployment", "cart"))
    section = Section(name="gate", state="fault", summary="", code=code)
    step = step_of(section, Report(subject("Pod", "cart-1", "v1"), "", (section,), owners))
    assert not re.search(r"[{}\n]", step)
    for command in re.findall(r"kubectl -n (\S+) rollout restart (\S+)", step):
        assert command == (NAMESPACE, "deployment/cart")
    commands = commands_in(step)
    assert bool(commands) == (STEPS[code] != NOTHING)
    for program, *words in map(shlex.split, commands):
        if program == "harbourmaster":
            create_parser().parse_args(words)


def test_the_pods_of_a_workload_are_released_by_its_name():
    section = Section(name="gate", state="fault", summary="", code="checks-pending")
    step = step_of(section, Report(subject("Deployment", "cart"), "", (section,)))
    assert f"harbourmaster gate release deployment/cart -n {NAMESPACE} --reason" in step


async def test_the_step_is_printed_where_something_is_to_be_done(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart")))
    put_owner(api, REPLICA_SETS, template(), ownerReferences=[reference("Deployment", "cart")])
    put_owner(api, DEPLOYMENTS, template())
    api.get(PODS, "cart-1", NAMESPACE)["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "next  start the scheduler that it names" in out
    assert NOTHING not in out
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "yaml")
    assert f"next: {NOTHING}" in out
