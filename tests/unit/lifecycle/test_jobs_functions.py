from __future__ import annotations

import pytest

from harbourmaster.lifecycle.functions import (
    Missing,
    TaskContainer,
    Unusable,
    config_map_for,
    config_map_keys,
    copy_name,
    function_name,
    is_name,
    references,
)
from helpers.tasks import definition, program_of, read, task


def refers(name, to, runtime="deno", **spec):
    return definition(name, **{runtime: {"functionRef": {"name": to}, **spec}})


def values(**parameters):
    return {"parameters": {"map": parameters}}


def test_a_function_brings_its_own_code():
    program = program_of(definition(deno={"inline": {"code": "1"}, "cmdParameters": "-q"}))
    assert (program.runtime, program.code, program.command) == ("deno", "1", "-q")


def test_a_container_needs_nothing_else():
    assert program_of(definition(container={"name": "a"})) == TaskContainer({"name": "a"})


def test_a_reference_gives_code_and_runtime():
    # As upstream: a deno child of a Python parent runs as Python.
    parent = definition("parent", python={"httpRef": {"url": "https://example.com/f.py"}})
    program = program_of(refers("child", "parent"), parent)
    assert program.runtime == "python"
    assert program.url == "https://example.com/f.py"
    assert program.bearer.metadata.name == "parent"


def test_secret_and_command_are_the_childs_if_it_has_some():
    brought = {
        "inline": {"code": "1"},
        "secureParameters": {"secret": "theirs"},
        "cmdParameters": "-p",
    }
    parent = definition("parent", deno=brought)
    program = program_of(refers("child", "parent"), parent)
    assert (program.secret, program.command) == ("theirs", "-p")
    own = refers("child", "parent", secureParameters={"secret": "own"}, cmdParameters="-c")
    program = program_of(own, parent)
    assert (program.secret, program.command) == ("own", "-c")


def test_a_tasks_parameters_only_add_and_its_secret_wins():
    by = definition(
        deno={
            "inline": {"code": "1"},
            "secureParameters": {"secret": "theirs"},
            **values(a="definition"),
        }
    )
    program = program_of(
        by, parameters={"map": {"a": "task", "b": "task"}}, secureParameters={"secret": "own"}
    )
    assert program.parameters == {"a": "definition", "b": "task"}
    assert (program.secret, program.command) == ("own", "")


def test_references_are_followed_until_there_is_code():
    grandparent = definition("c", deno={"inline": {"code": "1"}, **values(x="c", y="c", z="c")})
    program = program_of(
        refers("a", "b", **values(x="a")),
        refers("b", "c", **values(x="b", y="b")),
        grandparent,
    )
    assert program.parameters == {"x": "a", "y": "b", "z": "c"}
    assert program.bearer.metadata.name == "c"


def test_a_parent_with_code_and_a_reference_uses_its_code():
    # As upstream, where one reference is followed.
    parent = refers("b", "c", inline={"code": "of b"})
    program = program_of(refers("a", "b"), parent, definition("c"))
    assert program.code == "of b"


def test_a_reference_beats_the_code_beside_it():
    first = refers("a", "b", inline={"code": "of a"})
    assert program_of(first, definition("b", deno={"inline": {"code": "of b"}})).code == "of b"


@pytest.mark.parametrize(
    ("definitions", "chain"),
    [
        ([refers("a", "a")], "a > a"),
        ([refers("a", "b"), refers("b", "a")], "a > b > a"),
        ([refers("a", "b"), refers("b", "c"), refers("c", "b")], "a > b > c > b"),
        (
            [refers(f"d{at}", f"d{(at + 1) % 50}") for at in range(50)],
            "d0 > d1 > d2 > d3 > ... > d0",
        ),
    ],
)
def test_a_circle_of_references_is_no_function(definitions, chain):
    program = program_of(*definitions)
    assert isinstance(program, Unusable)
    assert program.reason == "CyclicFunctionRef"
    assert program.text.endswith(f"leads back to it: {chain}")


def test_a_reference_to_nothing_says_who_wants_it():
    program = program_of(refers("a", "b"))
    assert program == Missing("b", "KeptnTaskDefinition b, which a refers to, is not found")


def test_a_reference_to_a_container_is_no_function():
    program = program_of(refers("a", "b"), definition("b", container={"name": "x"}))
    assert isinstance(program, Unusable)
    assert program.text == (
        "KeptnTaskDefinition b, which a refers to, has no function: give it deno or python"
    )


@pytest.mark.parametrize("empty", [{"deno": {}}, {"python": {"inline": {"code": ""}}}])
def test_c67_a_function_without_code_never_runs(empty):
    program = program_of(definition(**empty))
    assert isinstance(program, Unusable)
    assert program.text == (
        "KeptnTaskDefinition hello has no code: give it inline, configMapRef, httpRef or "
        "functionRef"
    )


@pytest.mark.parametrize(
    ("kinds", "has"),
    [
        ({"deno": {}, "python": {}}, "deno and python"),
        ({"deno": {}, "container": {"name": "x"}}, "deno and container"),
    ],
)
def test_c68_two_runtimes_are_one_too_many(kinds, has):
    program = program_of(definition(**kinds))
    assert isinstance(program, Unusable)
    assert program.text.endswith(
        f"must have exactly one of deno, python and container, and has {has}"
    )


def test_c68_no_runtime_is_one_too_few():
    none = definition()
    none["spec"] = {}
    program = program_of(none)
    assert isinstance(program, Unusable)
    assert program.text.endswith("and has none")


def test_code_in_a_config_map_beats_a_url():
    by = definition(
        deno={"configMapRef": {"name": "cm"}, "httpRef": {"url": "https://example.com"}}
    )
    program = program_of(by)
    assert (program.config_map, program.code) == ("cm", "")
    assert config_map_keys(read(by)) == ("prod/cm",)


def test_inline_code_has_a_config_map_named_after_the_definition():
    assert config_map_keys(read(definition())) == ("prod/keptnfn-hello",)
    assert config_map_keys(read(definition(deno={"httpRef": {"url": "u"}}))) == ()
    assert config_map_keys(read(definition(container={"name": "x"}))) == ()


def test_names_of_config_maps_fit():
    assert function_name("d" * 253) == f"keptnfn-{'d' * 245}"
    assert function_name("d" * 244 + ".e") == f"keptnfn-{'d' * 244}"
    assert copy_name("pre-hello-12345") == "keptntask-pre-hello-12345"
    assert len(copy_name("t" * 253)) == 253


def test_a_config_map_goes_with_its_owner():
    owner = read(task()).metadata
    config_map = config_map_for(owner, "KeptnTask", "cm", "the code")
    assert config_map["data"] == {"code": "the code"}
    (reference,) = config_map["metadata"]["ownerReferences"]
    assert reference["uid"] == owner.uid
    assert reference["controller"] is True
    assert config_map["metadata"]["namespace"] == "prod"


def test_who_refers_to_whom_is_known():
    assert references(read(refers("a", "b", runtime="python"))) == ("b",)
    assert references(read(definition())) == ()
    assert references(read(definition(container={"name": "x"}))) == ()


@pytest.mark.parametrize("name", ["a", "a-b.c", "0", "a" * 253])
def test_names_that_objects_have(name):
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a/../b", "A", "a\n", "-a", "a.", "a" * 254]
)
def test_names_that_would_lead_elsewhere(name):
    assert not is_name(name)
