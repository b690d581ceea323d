"""No test is unable to fail: each has an assertion that is sure to run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ASSERTS = re.compile(r"((assert_|until)\w*|until|eventually|raises|warns|fail)$")
"""The calls that can fail a test; a call that waits fails at its time limit."""
AS_MANY = re.compile("(enumerate|items|keys|len|list|permutations|product|sorted|values|zip)$")
"""The calls whose result is not empty if none of their arguments is."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def find_faults(source):
    """Yield line, name and fault of each test in a module that cannot fail."""
    tree = ast.parse(source)
    constants = _find_filled(tree.body, {})
    for test in tree.body:
        if not isinstance(test, FUNCTIONS) or not test.name.startswith("test_"):
            continue
        marks = {_name_of(call) for call in test.decorator_list if isinstance(call, ast.Call)}
        # The values of these arguments are written beside the test.
        names = (
            [argument.arg for argument in test.args.args]
            if marks & {"given", "parametrize"}
            else ()
        )
        if not _has_assertion(test):
            yield test.lineno, test.name, "no assertion"
        elif doubt := _find_doubt(test.body, constants | dict.fromkeys(names, True)):
            yield test.lineno, test.name, f"asserts only inside {doubt}"


def _name_of(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _has_assertion(node):
    return any(
        isinstance(part, ast.Assert)
        or (isinstance(part, ast.Call) and ASSERTS.match(_name_of(part)))
        for part in ast.walk(node)
    )


def _find_filled(body, known):
    """Return for each name whether the code shows that its value is not empty."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known = {**known, node.targets[0].id: _is_filled(node.value, known)}
    return known


def _is_filled(node, known):
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            # A constant of another module is trusted.
            return known.get(name, name.isupper())
        case ast.Constant(value=value) | ast.List(elts=value) | ast.Tuple(elts=value):
            return bool(value)
        case ast.Dict(keys=value) | ast.Set(elts=value):
            return bool(value)
        case ast.BinOp(left=left, right=right):
            return _is_filled(left, known) and _is_filled(right, known)
        case ast.Subscript(value=value, slice=ast.Name() | ast.Constant()):
            return _is_filled(value, known)
        case ast.Call(func=ast.Name(id="range"), args=args):
            return all(
                isinstance(argument, ast.Constant) or _is_filled(argument, known)
                for argument in args
            )
        case ast.Call(args=args) if AS_MANY.match(_name_of(node)):
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) and not args else []
            return all(_is_filled(value, known) for value in [*owner, *args])
        case _ if hasattr(node, "generators"):
            return all(
                _is_filled(generator.iter, known) and not generator.ifs
                for generator in node.generators
            )
    return False


def _find_doubt(body, known):
    """Return the statement around the first assertion of a body, None if one is sure to run."""
    first = ""
    for node in body:
        known = _find_filled([node], known)
        if _has_assertion(node):
            text, bodies = _parts(node, known)
            doubts = [_find_doubt(body, known) for body in bodies]
            if all(doubt is None for doubt in doubts):
                return None
            first = first or next(filter(None, doubts), text)
    return first


def _parts(node, known):
    """Return a text for a statement, and its bodies, each of which must be sure to run one."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name, [[]]
        case ast.For(iter=over, body=body) | ast.AsyncFor(iter=over, body=body):
            return f"a loop over {ast.unparse(over)}", [body if _is_filled(over, known) else []]
        case ast.While(test=test):
            return f"a loop while {ast.unparse(test)}", [[]]
        case ast.Assert(test=ast.Call(func=ast.Name(id="all"), args=[over])):
            return "all() over what may be empty", [] if _is_filled(over, known) else [[]]
        case ast.If(test=test, body=body, orelse=orelse):
            return f"if {ast.unparse(test)}", [body, orelse]
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            return "with", [[*(ast.Expr(item.context_expr) for item in items), *body]]
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            return "except", [[*body, *orelse, *last]]
    return "", []


def test_every_test_can_fail():
    faults = [
        f"{path.relative_to(TESTS.parent)}:{line} {name}: {fault}"
        for path in sorted(TESTS.glob("*/**/test_*.py"))
        for line, name, fault in find_faults(path.read_text())
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("check(1)", "no assertion"),
        ("for each in found(): assert each", "asserts only inside a loop over found()"),
        ("for each in NONE: assert each", "asserts only inside a loop over NONE"),
        ("for each in FILES: assert each", "asserts only inside a loop over FILES"),
        ("if found(): assert NONE", "asserts only inside if found()"),
        ("while found(): assert NONE", "asserts only inside a loop while found()"),
        (
            "assert all(each for each in found())",
            "asserts only inside all() over what may be empty",
        ),
        ("def inner(): assert NONE", "asserts only inside inner"),
        (
            "with found() as each:\n  for one in each: assert one",
            "asserts only inside a loop over each",
        ),
        ("assert found()\n for each in found(): assert each", None),
        ("for each in TWO: assert each", None),
        ("for each, one in zip(TWO, range(2)): assert each", None),
        ("for each in given: assert each", None),
        ("assert all(each for each in [1, 2])", None),
        ("if found(): assert 1\n else: assert 2", None),
        ("with pytest.raises(KeyError): found()", None),
        ("assert_right(1)", None),
    ],
)
def test_what_makes_a_test_one_that_cannot_fail(body, fault):
    constants = "NONE = []\nTWO = (1, 2)\nFILES = list(Path().glob('*'))\n"
    test = f"@pytest.mark.parametrize('given', TWO)\ndef test_it(given):\n {body}\n"
    expected = [] if fault is None else [(5, "test_it", fault)]
    assert list(find_faults(constants + test)) == expected
