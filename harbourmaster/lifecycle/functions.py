"""Resolves what a task runs: its definition's container, or a function found through references.

A function's code is in a ConfigMap or behind a URL (keptn-spec 3.8, 3.9). References are followed
until a definition has code; upstream follows one only, and what works there works the same here.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.names import dns_subdomain
from harbourmaster.gates.names import NAME_LEAST, NAME_LIMIT, resource_name
from harbourmaster.lifecycle.model import Inline, RuntimeSpec, TaskDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.lifecycle.model import Task

DENO: Final = "deno"
PYTHON: Final = "python"
CODE: Final = "code"
"""The key of a function in its ConfigMap."""
DIGEST: Final = "gates.harbourmaster.dev/code-digest"
"""Annotation of our ConfigMaps: the digest of the code that they should have."""
_PREFIX: Final = "keptnfn-"
_KEPT: Final = 245
"""Characters of a definition's name that are kept in the name of its ConfigMap, as upstream."""
_SHOWN: Final = 6
"""Names of a chain that a message lists."""
_LABELS: Final = {"app.kubernetes.io/managed-by": "harbourmaster"}

Find: TypeAlias = "Callable[[str], TaskDefinition | None]"
"""Returns a definition by name, for the namespace of the task."""


class Function(Struct, frozen=True):
    """A function with its inputs.

    The first of ``code``, ``config_map`` and ``url`` that is set counts. ``bearer`` is the
    definition with the code; ``config_map`` is in its namespace. ``code`` is a digest if the
    definition is from a cache.
    """

    runtime: str
    bearer: TaskDefinition
    code: str = ""
    config_map: str = ""
    url: str = ""
    parameters: dict[str, str] = {}
    secret: str = ""
    command: str = ""


class TaskContainer(Struct, frozen=True):
    """A container that the user defines."""

    spec: dict[str, Any]


class Missing(Struct, frozen=True):
    """A definition that does not exist; ``text`` says what refers to it."""

    name: str
    text: str


class Unusable(Struct, frozen=True):
    """A definition that cannot run unless it changes."""

    reason: str
    text: str


def resolve(
    task: Task, definition: TaskDefinition, find: Find
) -> Function | TaskContainer | Missing | Unusable:
    """Return what ``task`` runs by its ``definition``; ``find`` looks up referred definitions."""
    name = definition.metadata.name
    kinds = _kinds(definition)
    if len(kinds) != 1:
        given = " and ".join(kinds) if kinds else "none"
        return Unusable(
            "InvalidDefinition",
            f"KeptnTaskDefinition {name} must have exactly one of deno, python and container, "
            f"and has {given}",
        )
    if definition.spec.container is not None:
        return TaskContainer(definition.spec.container)
    return _function(task, definition, find)


def _function(task: Task, definition: TaskDefinition, find: Find) -> Function | Missing | Unusable:
    parameters: dict[str, str] = {}
    secret = command = ""
    chain: list[str] = []
    while True:
        name = definition.metadata.name
        if name in chain:
            return Unusable(
                "CyclicFunctionRef",
                f"the functionRef of KeptnTaskDefinition {name} leads back to it: "
                f"{_chain_text([*chain, name])}",
            )
        kinds = _kinds(definition)
        runtime = next((kind for kind in kinds if len(kinds) == 1 and kind != "container"), None)
        if runtime is None:
            return Unusable(
                "NoFunction",
                f"KeptnTaskDefinition {name}, which {chain[-1]} refers to, has no function: "
                "give it deno or python",
            )
        spec = spec_of(definition)
        # The nearest definition wins.
        parameters = {**spec.parameters.map, **parameters}
        secret = secret or spec.secure_parameters.secret
        command = command or spec.cmd_parameters
        reference = spec.function_ref.name if spec.function_ref else ""
        # As upstream, the first definition's reference beats its own code, and only there.
        if _has_code(spec) and not (reference and not chain):
            return Function(
                runtime,
                definition,
                code=inline_code(spec),
                config_map=spec.config_map_ref.name if spec.config_map_ref else "",
                url=spec.http_ref.url if spec.http_ref else "",
                parameters={**task.spec.parameters.map, **parameters},
                secret=task.spec.secure_parameters.secret or secret,
                command=command,
            )
        if not reference:
            return Unusable(
                "NoFunction",
                f"KeptnTaskDefinition {name} has no code: give it inline, configMapRef, httpRef "
                "or functionRef",
            )
        chain.append(name)
        referred = find(reference)
        if referred is None:
            return Missing(
                reference,
                f"KeptnTaskDefinition {reference}, which {name} refers to, is not found",
            )
        definition = referred


def spec_of(definition: TaskDefinition) -> RuntimeSpec:
    """Return the deno or python part, or an empty one for a container."""
    return definition.spec.deno or definition.spec.python or RuntimeSpec()


def inline_code(spec: RuntimeSpec) -> str:
    """Return the code in the definition itself, or ""."""
    return spec.inline.code if spec.inline else ""


def without_code(definition: TaskDefinition) -> TaskDefinition:
    """Return the definition with a digest in place of its inline code, as caches keep it."""
    spec = definition.spec
    parts = {DENO: spec.deno, PYTHON: spec.python}
    shortened = {
        name: replace(part, inline=Inline(code=digest(part.inline.code)))
        for name, part in parts.items()
        if part and part.inline and part.inline.code
    }
    return replace(definition, spec=replace(spec, **shortened)) if shortened else definition


def config_map_of(definition: TaskDefinition) -> str:
    """Return the ConfigMap with the definition's code, in its namespace, or ""."""
    spec = spec_of(definition)
    if inline_code(spec):
        return function_name(definition.metadata.name)
    return spec.config_map_ref.name if spec.config_map_ref else ""


def config_map_keys(definition: TaskDefinition) -> tuple[str, ...]:
    """Return the key of the ConfigMap with the definition's code, for an index."""
    name = config_map_of(definition)
    return (f"{definition.metadata.namespace}/{name}",) if name else ()


def references(definition: TaskDefinition) -> tuple[str, ...]:
    """Return the name of the definition that this one refers to, for an index."""
    reference = spec_of(definition).function_ref
    return (reference.name,) if reference and reference.name else ()


def function_name(definition: str) -> str:
    """Return the name of the ConfigMap of a definition with inline code."""
    return f"{_PREFIX}{definition[:_KEPT].rstrip('-.')}"


def copy_name(task: str) -> str:
    """Return the name of the ConfigMap with the code of another namespace, for one task."""
    return resource_name(NAME_LIMIT, NAME_LEAST, f"keptntask-{task}")


def is_name(text: str) -> bool:
    """Whether the text is a valid object name; any other text could change the request path."""
    return bool(text) and not dns_subdomain(text)


def digest(code: str) -> str:
    """Return a short hash of the code."""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def config_map_for(owner: Metadata, kind: str, name: str, code: str) -> dict[str, Any]:
    """Return the ConfigMap with this code, deleted with its owner of the lifecycle group."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": _LABELS,
            "annotations": {DIGEST: digest(code)},
            "ownerReferences": [
                {
                    "apiVersion": "lifecycle.keptn.sh/v1",
                    "kind": kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                }
            ],
        },
        "data": {CODE: code},
    }


def _kinds(definition: TaskDefinition) -> list[str]:
    """Return which of the three parts are given; an empty object counts."""
    spec = definition.spec
    parts = {DENO: spec.deno, PYTHON: spec.python, "container": spec.container}
    return [kind for kind, part in parts.items() if part is not None]


def _has_code(spec: RuntimeSpec) -> bool:
    return bool(
        inline_code(spec)
        or (spec.config_map_ref and spec.config_map_ref.name)
        or (spec.http_ref and spec.http_ref.url)
    )


def _chain_text(chain: list[str]) -> str:
    """Return the chain, or the ends of a long one."""
    shown = chain if len(chain) <= _SHOWN else [*chain[: _SHOWN - 2], "...", chain[-1]]
    return " > ".join(shown)
