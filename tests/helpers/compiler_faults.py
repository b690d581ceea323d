"""Faults put into the compiler of admission policies: one changed text each."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harbourmaster.policies import admission_policies, cel, cel_paths, cel_tolerations, delegation

MODULES = (cel, cel_paths, cel_tolerations, admission_policies)


class Fault(NamedTuple):
    """A text of a module, and what stands there instead."""

    module: str
    old: str
    new: str

    @property
    def places(self):
        """The number of places with the text."""
        texts = [_text(module) for module in MODULES if module.__name__.endswith(f".{self.module}")]
        return sum(text.count(self.old) for text in texts)

    @contextmanager
    def apply(self):
        """Compile with the fault."""
        kept = cel, delegation.expressions
        try:
            for module in MODULES:
                text = _text(module)
                if module.__name__.endswith(f".{self.module}"):
                    text = text.replace(self.old, self.new)
                _load(module.__name__, text)
            delegation.expressions = sys.modules[admission_policies.__name__].expressions
            delegation.cel = sys.modules[cel.__name__]
            yield
        finally:
            delegation.cel = cel
            package = sys.modules["harbourmaster.policies"]
            for module in MODULES:
                sys.modules[module.__name__] = module
                setattr(package, module.__name__.rpartition(".")[2], module)
            delegation.expressions = kept[1]


def _text(module):
    return Path(module.__file__).read_text(encoding="utf-8")


def _load(name, text):
    spec = importlib.util.spec_from_loader(name, loader=None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    setattr(sys.modules["harbourmaster.policies"], name.rpartition(".")[2], module)
    exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102 - our own text


CEL, PATHS, POLICIES = "cel", "cel_paths", "admission_policies"
TOLERATIONS = "cel_tolerations"
FAULTS = {
    "In ignores all values but one": Fault(
        CEL, "{literal(sorted(values))}", "{literal(sorted(values)[:1])}"
    ),
    "NotIn selects what In does": Fault(
        CEL,
        'f"!({_has_one_of(labels, key, values)})" for',
        'f"{_has_one_of(labels, key, values)}" for',
    ),
    "DoesNotExist is left out": Fault(
        CEL, 'f"!({literal(key)} in {labels})"', 'f"true || {literal(key)} in {labels}"'
    ),
    "values keep their order": Fault(
        CEL, 'return f"{values}.distinct().sort()"', 'return f"{values}"'
    ),
    "the operator of a requirement is no part of its key": Fault(
        CEL, "{_text(x, 'operator')}] + {_set(values)}", '\\"In\\"] + {_set(values)}'
    ),
    "the seconds of a toleration are no part of its key": Fault(
        CEL, 'string({x}.tolerationSeconds) : ""', '"" : ""'
    ),
    "the weight of a preference is no part of its key": Fault(
        CEL, "{_weight(x)}] + {term_of", '\\"1\\"] + {term_of'
    ),
    "an empty label selector is none": Fault(CEL, ': ["-"])', ': ["+", "+"])'),
    "namespaces of a pod affinity term are not compared": Fault(
        CEL,
        '_POD_TERM_SETS: Final = ("namespaces", "matchLabelKeys"',
        '_POD_TERM_SETS: Final = ("matchLabelKeys"',
    ),
    "the policy's label wins over the pod's": Fault(
        POLICIES,
        'f"!variables.isDaemon && !({literal(key)} in variables.nodeLabels)"',
        '"!variables.isDaemon"',
    ),
    "the last policy's label wins": Fault(
        POLICIES,
        "return f\"{matches} && !({cel.some(f'{_MATCHES}[{position}]' for position in earlier)})\"",
        "return matches",
    ),
    "a pod's scheduler is replaced": Fault(
        POLICIES, 'f\'!({own} in {_DEFAULT_SCHEDULERS}) ? "" : ', 'f\'{own} == "?" ? "" : '
    ),
    "default-scheduler counts as a choice": Fault(
        POLICIES, 'literal(["", "default-scheduler"])', 'literal([""])'
    ),
    "terms are not absorbed": Fault(
        POLICIES, 'f"{before}.map(t, {absorbed} ? [t]', 'f"{before}.map(t, false ? [t]'
    ),
    "one absorbed term is enough": Fault(
        POLICIES, "{before}.all(t, {absorbed})", "{before}.exists(t, {absorbed})"
    ),
    "equal terms are kept twice": Fault(
        POLICIES, 'once = f"{keys}.indexOf({keys}[i]) == i"', 'once = "true"'
    ),
    "the pod's requirements stand first": Fault(
        POLICIES,
        "p.{scope} + t.{scope}.filter(x, {_IS_NEW})",
        "t.{scope}.filter(x, {_IS_NEW}) + p.{scope}",
    ),
    "fields of nodes are left out": Fault(
        POLICIES, '"matchFields": t.f.map(x, x.r)', '"matchFields": []'
    ),
    "the second required policy replaces the first": Fault(
        POLICIES, 'before = f"variables.terms{index}"', "pass"
    ),
    "the selector of namespaces is not asked": Fault(
        PATHS, "cel.selects(namespaces, _NAMESPACE_LABELS),", '"true",'
    ),
    "a selector of pods is not asked": Fault(
        PATHS, "cel.selects(policy.pods, _LABELS),", '"true",'
    ),
    "an entry that is there is appended": Fault(
        POLICIES, 'f"!({literal(key)} in variables.{name}Keys)"', '"true"'
    ),
    "a default toleration that does not count is replaced": Fault(
        TOLERATIONS, ".indexOf({literal(default)}) == 0", ".indexOf({literal(default)}) >= 0"
    ),
    "the default that a policy asks for is replaced": Fault(
        TOLERATIONS, "{literal(toleration(item) != default)}", "true"
    ),
    "a default that a later policy asks for is not added again": Fault(
        TOLERATIONS, 'f"({is_absent} || {literal(key)} in variables.replaced)"', "is_absent"
    ),
}
