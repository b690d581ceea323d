"""Finds tests that cannot fail: no assertion, or none that is sure to run."""

from __future__ import annotations

import ast
import re

ASSERTS = re.compile(r"((assert_|until)\w*|until|eventually|raises|warns|fail)$")
"""The calls that fail a test: one that only waits does so when what it waits for never comes."""
AS_MANY = re.compile("(enumerate|items|keys|len|list|permutations|product|sorted|values|zip)$")
"""The calls that give something where each of their arguments holds something."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def faults(source):
    """Yield line, name and fault of each test in a module that cannot fail."""
    tree = ast.parse(source)
    constants = _learned(tree.body, {})
    for test in tree.body:
        if not isinstance(test, FUNCTIONS) or not test.name.startswith("test_"):
            continue
        marks = {_name(each) for each in test.decorator_list if isinstance(each, ast.Call)}
        # What these give to a test is spelled out beside it.
        names = (
            [argument.arg for argument in test.args.args]
            if marks & {"given", "parametrize"}
            else ()
        )
        if not _asserts(test):
            yield test.lineno, test.name, "no assertion"
        elif doubt := _doubt(test.body, constants | dict.fromkeys(names, True)):
            yield test.lineno, test.name, f"asserts only inside {doubt}"


def _name(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _asserts(node):
    return any(
        isinstance(each, ast.Assert) or (isinstance(each, ast.Call) and ASSERTS.match(_name(each)))
        for each in ast.walk(node)
    )


def _learned(body, known):
    """Return for each name whether the code itself spells out that it holds something."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known = {**known, node.targets[0].id: _holds(node.value, known)}
    return known


def _holds(node, known):
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            # A constant of another module is trusted.
            return known.get(name, name.isupper())
        case ast.Constant(value=value) | ast.List(elts=value) | ast.Tuple(elts=value):
            return bool(value)
        case ast.Dict(keys=value) | ast.Set(elts=value):
            return bool(value)
        case ast.BinOp(left=left, right=right):
            return _holds(left, known) and _holds(right, known)
        case ast.Subscript(value=value, slice=ast.Name() | ast.Constant()):
            return _holds(value, known)
        case ast.Call(func=ast.Name(id="range"), args=args):
            return all(
                isinstance(argument, ast.Constant) or _holds(argument, known) for argument in args
            )
        case ast.Call(args=args) if AS_MANY.match(_name(node)):
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) and not args else []
            return all(_holds(each, known) for each in [*owner, *args])
        case _ if hasattr(node, "generators"):
            return all(
                _holds(generator.iter, known) and not generator.ifs for generator in node.generators
            )
    return False


def _doubt(body, known):
    """Return in what the first assertion of a body stands, None if one is sure to run."""
    first = ""
    for node in body:
        known = _learned([node], known)
        if _asserts(node):
            text, bodies = _parts(node, known)
            doubts = [_doubt(each, known) for each in bodies]
            if all(doubt is None for doubt in doubts):
                return None
            first = first or next(filter(None, doubts), text)
    return first


def _parts(node, known):
    """Return what a statement is, and the bodies that all have to be sure for it to be."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name, [[]]
        case ast.For(iter=over, body=body) | ast.AsyncFor(iter=over, body=body):
            return f"a loop over {ast.unparse(over)}", [body if _holds(over, known) else []]
        case ast.While(test=test):
            return f"a loop while {ast.unparse(test)}", [[]]
        case ast.Assert(test=ast.Call(func=ast.Name(id="all"), args=[over])):
            return "all() over what may be empty", [] if _holds(over, known) else [[]]
        case ast.If(test=test, body=body, orelse=orelse):
            return f"if {ast.unparse(test)}", [body, orelse]
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            return "with", [[*(ast.Expr(item.context_expr) for item in items), *body]]
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            return "except", [[*body, *orelse, *last]]
    return "", []
