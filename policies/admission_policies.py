"""Policies as admission policies of the API server, with the same effect as the webhook's merge.

All policies that apply to a kind become one MutatingAdmissionPolicy with one mutation: the API
server applies several in random order, and each mutation costs a conversion of the whole object.
Its variables compute what is added, policy by policy; the mutation itself is always the same.
What exceeds a bound is left as it is, and a ValidatingAdmissionPolicy reports or refuses it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.policies import cel, cel_tolerations
from harbourmaster.policies.cel import (
    MAX_REQUIREMENTS,
    MAX_TERMS,
    OWN_ITEMS,
    OWN_TERMS,
    Cel,
    Limits,
    literal,
)
from harbourmaster.policies.cel_paths import PODS, matching, namespace_labels
from harbourmaster.policies.cel_tolerations import KEPT
from harbourmaster.policies.model import NODE_SELECTOR, REQUIRED, SCHEDULER_NAME, TOLERATIONS
from harbourmaster.policies.pods import PODS_OF_DAEMON_SETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harbourmaster.policies.cel_paths import PodPaths
    from harbourmaster.policies.compiled import CompiledPolicy

    Json = dict[str, Any]
    Terms = Sequence[Json]

MAX_TOLERATIONS: Final = 64
"""The most tolerations of a pod that is changed."""
MAX_FACTOR_VALUES: Final = 512
"""Values of a pod's required terms, after the product."""
MAX_ADDED_VALUES: Final = 64
"""About the values that policies add to each of these terms."""
MAX_EXPRESSION: Final = 90_000
"""Characters; the API server's parser takes 100,000."""

_MATCHES: Final = "variables.matches"
_CONSTRAINS: Final = "variables.constrains"
"""Whether policies select the pod and its nodes are limited: not for pods of DaemonSets."""
_TERMS: Final = "nodeSelectorTerms"
_IS_NEW: Final = "x.n && !(x.k in p.k)"
"""Whether an entry of the term ``t`` is missing from the policy's term ``p``."""
_DEFAULT_SCHEDULERS: Final = literal(["", "default-scheduler"])


class Expressions(Struct, frozen=True):
    """The CEL expressions of the admission policies for one kind of pod path."""

    conditions: tuple[tuple[str, Cel], ...]
    """Match conditions, with their names."""
    variables: tuple[tuple[str, Cel], ...]
    mutation: Cel
    lacking: tuple[Cel, ...]
    """Conditions, one for each policy: the object is selected and lacks something of it."""


def expressions(policies: Sequence[CompiledPolicy], part: PodPaths) -> Expressions:
    """Policies without a fault, in the order of their ranks."""
    return _Generator(policies, part).expressions()


class _Generator:
    def __init__(self, policies: Sequence[CompiledPolicy], part: PodPaths) -> None:
        self._policies = policies
        self._part = part
        self._required = {
            index: policy.required.terms.terms
            for index, policy in enumerate(policies)
            if policy.required
        }

    def expressions(self) -> Expressions:
        part = self._part
        anything = cel.some(
            dict.fromkeys(
                cel.selects(policy.pods, f"{part.metadata}.?labels.orValue({{}})")
                for policy in self._policies
                if policy.pods is not None
            )
        )
        terms = f"{part.spec}.?affinity.?nodeAffinity.?{REQUIRED}.?{_TERMS}"
        is_pod = part.name == PODS.name
        conditions = (
            ("changeable", f"!has(object.metadata.deletionTimestamp) && {part.condition}"),
            ("selected", anything),
        )
        variables = (
            ("labels", f"{part.metadata}.?labels.orValue({{}})"),
            ("namespaceLabels", namespace_labels()),
            ("kinds", part.kinds),
            ("isDaemon", f"{literal(PODS_OF_DAEMON_SETS)} in variables.kinds"),
            ("matches", f"[{', '.join(map(matching, self._policies))}]"),
            ("constrains", f"{_MATCHES}.map(m, m && !variables.isDaemon)"),
            ("nodeLabels", self._own(NODE_SELECTOR, "{}")),
            ("tolerations", self._own(TOLERATIONS, "[]")),
            ("tolerationKeys", f"variables.tolerations.map(x, {cel.toleration_of('x')})"),
            *self._lists(),
            ("replaced", cel_tolerations.replaced(self._policies, _MATCHES) if is_pod else "[]"),
            ("addedLabels", self._added_labels()),
            ("addedTolerations", self._added_tolerations()),
            ("scheduler", self._scheduler()),
            # An empty list is null in the API server's own form of the object.
            ("nodeTerms", f"[{terms}.orValue([])].filter(l, dyn(l) != null).flatten()"),
            ("termKeys", self._term_keys()),
            ("terms", self._own_terms()),
            ("fits", self._fits()),
            # What policies added can exceed the limits for what comes.
            ("comparable", self._is_comparable()),
            *self._products(),
        )
        return Expressions(conditions, variables, self._mutation(), tuple(self._lacking()))

    def _own(self, name: str, default: Cel) -> Cel:
        return f"{self._part.spec}.?{name}.orValue({default})"

    # What is added, of labels, tolerations, items of affinity lists and the scheduler

    def _first(self, index: int, earlier: Sequence[int]) -> Cel:
        """Whether a policy selects the pod, and none that adds the same before it."""
        matches = f"{_MATCHES}[{index}]"
        if not earlier:
            return matches
        return f"{matches} && !({cel.some(f'{_MATCHES}[{position}]' for position in earlier)})"

    def _entries(self, values: Iterator[tuple[int, str, Cel, Cel]]) -> Cel:
        """A list of values: of each policy by index, key, whether the pod lacks it, and value."""
        seen: dict[str, list[int]] = {}
        entries = []
        for index, key, absent, value in values:
            earlier = seen.setdefault(key, [])
            if index not in earlier:
                entries.append(f"{self._first(index, earlier)} && {absent} ? [{value}] : []")
                earlier.append(index)
        return f"[{', '.join(entries)}].flatten()" if entries else "[]"

    def _added_labels(self) -> Cel:
        labels = self._entries(
            (
                index,
                key,
                f"!variables.isDaemon && !({literal(key)} in variables.nodeLabels)",
                literal({key: value}),
            )
            for index, policy in enumerate(self._policies)
            for key, value in policy.node_selector
        )
        if self._part.name == PODS.name:
            return labels
        # Which labels a RuntimeClass sets is unknown here, so its pods get those of policies.
        return f'{self._part.spec}.?runtimeClassName.orValue("") == "" ? {labels} : []'

    def _added_tolerations(self) -> Cel:
        return self._entries(
            (
                index,
                key := cel.toleration(item),
                cel_tolerations.lacks(key),
                f"dyn({literal(item)})",
            )
            for index, policy in enumerate(self._policies)
            for item, _ in policy.tolerations
        )

    def _lists(self) -> Iterator[tuple[str, Cel]]:
        """Yield two variables for each affinity list: the pod's keys, and the new items."""
        for slot in self._slots():
            name, item = _name(slot), cel.ITEMS[slot]
            yield f"{name}Keys", f"{self._items(slot)}.map(x, {item.key_of('x')})"
            yield (
                f"{name}Added",
                self._entries(
                    (
                        index,
                        key := item.key(entry),
                        f"!({literal(key)} in variables.{name}Keys)",
                        f"dyn({literal(entry)})",
                    )
                    for index, policy in enumerate(self._policies)
                    for policy_slot, items in policy.lists
                    if policy_slot == slot
                    for entry, _ in items
                ),
            )

    def _scheduler(self) -> Cel:
        named = [
            f"{_MATCHES}[{index}] ? {literal(policy.scheduler_name)}"
            for index, policy in enumerate(self._policies)
            if policy.scheduler_name
        ]
        own = self._own(SCHEDULER_NAME, '""')
        return f'!({own} in {_DEFAULT_SCHEDULERS}) ? "" : {" : ".join((*named, literal("")))}'

    # Required node affinity. A term is {"k": keys, "e": entries, "f": entries}, of expressions and
    # of fields; an entry is {"k": key, "r": requirement, "n": whether none before it is the same}.

    def _term_keys(self) -> Cel:
        scopes = ", ".join(
            f'"{short}": t.?{scope}.orValue([]).map(x, "{scope}|" + {cel.requirement_of("x")})'
            for short, scope in cel.SHORT_SCOPES
        )
        return f"variables.nodeTerms.map(t, {{{scopes}}})"

    def _own_terms(self) -> Cel:
        keys = "variables.termKeys[i]"
        entries = ", ".join(
            f'"{short}": dyn(lists.range({keys}.{short}.size()).map(j, '
            f'{{"k": dyn({keys}.{short}[j]), "r": dyn(variables.nodeTerms[i].{scope}[j]), '
            f'"n": dyn({keys}.{short}.indexOf({keys}.{short}[j]) == j)}}))'
            for short, scope in cel.SHORT_SCOPES
        )
        every_key = f'"k": dyn(({keys}.e + {keys}.f).distinct())'
        return f"lists.range(variables.nodeTerms.size()).map(i, {{{every_key}, {entries}}})"

    def _products(self) -> Iterator[tuple[str, Cel]]:
        """Yield product, keys and resulting terms for each policy with required terms."""
        before = "variables.terms"
        for index, terms in self._required.items():
            ours = f"[{', '.join(map(cel.state, terms))}]"
            absorbed = cel.is_absorbed(terms)
            product, keys = f"variables.product{index}", f"variables.keys{index}"
            fresh = (f'"{scope}": p.{scope} + t.{scope}.filter(x, {_IS_NEW})' for scope in "ef")
            merged = ", ".join(('"k": p.k + t.k.filter(k, !(k in p.k))', *fresh))
            yield (
                f"product{index}",
                f"{before}.map(t, {absorbed} ? [t] : {ours}.map(p, {{{merged}}})).flatten()",
            )
            yield f"keys{index}", f'{product}.map(t, t.k.sort().join("|"))'
            once = f"{keys}.indexOf({keys}[i]) == i"
            same = f"!{_CONSTRAINS}[{index}] || {before}.size() > 0 && {before}.all(t, {absorbed})"
            new = f"lists.range({keys}.size()).filter(i, {once}).map(i, {product}[i])"
            yield (
                f"terms{index}",
                f"{same} ? {before} : {before}.size() == 0 ? {ours} : {new}",
            )
            before = f"variables.terms{index}"

    def _lacks_required(self, index: int) -> Cel:
        terms = self._required.get(index)
        if terms is None:
            return "false"
        return f"variables.terms.size() == 0 || !variables.terms.all(t, {cel.is_absorbed(terms)})"

    def _fits(self) -> Cel:
        """Whether what policies do to the pod is cheap; it is first asked how much there is."""
        return cel.every(
            (
                f"variables.tolerations.size() <= {MAX_TOLERATIONS}",
                *(cel.ITEMS[slot].are_few(self._items(slot), OWN_ITEMS) for slot in self._slots()),
                *self._small_product(),
            )
        )

    def _small_product(self) -> Iterator[Cel]:
        if not self._required:
            return
        yield cel.are_few("variables.nodeTerms", cel.requirements_of, OWN_TERMS)
        factor = " * ".join(self._of_matching(len, 1))
        own = "(variables.nodeTerms.size() == 0 ? 1 : variables.nodeTerms.size())"
        yield f"{own} * {factor} <= {MAX_TERMS}"
        requirements = cel.requirements_of("t")
        values = f"({requirements}).map(r, r.?values.orValue([])).flatten()"
        yield (
            f"variables.nodeTerms.map(t, {values}).flatten().size() * {factor} "
            f"<= {MAX_FACTOR_VALUES}"
        )
        for number, most in ((0, MAX_REQUIREMENTS), (1, MAX_ADDED_VALUES)):
            added = " + ".join(self._of_matching(partial(_most, number), 0))
            yield f"{added} <= {most}"

    def _of_matching(self, count: Callable[[Terms], int], default: int) -> Iterator[Cel]:
        for index, terms in self._required.items():
            yield f"({_CONSTRAINS}[{index}] ? {count(terms)} : {default})"

    def _is_comparable(self) -> Cel:
        """Return whether a pod that already has all additions is cheap to compare."""
        requirements = 2 * MAX_TERMS * MAX_REQUIREMENTS
        final = Limits(MAX_TERMS, requirements, MAX_FACTOR_VALUES + MAX_TERMS * MAX_ADDED_VALUES)
        added = sum(len(policy.tolerations) for policy in self._policies)
        return cel.every(
            (
                f"variables.tolerations.size() <= {MAX_TOLERATIONS + added}",
                *(
                    cel.ITEMS[slot].are_few(self._items(slot), self._final(slot))
                    for slot in self._slots()
                ),
                *(
                    (cel.are_few("variables.nodeTerms", cel.requirements_of, final, twice=True),)
                    if self._required
                    else ()
                ),
            )
        )

    def _final(self, slot: tuple[str, str]) -> Limits:
        items = [
            item
            for policy in self._policies
            for policy_slot, entries in policy.lists
            if policy_slot == slot
            for item, _ in entries
        ]
        requirements, values = cel.count_parts(items)
        return Limits(
            OWN_ITEMS.items + len(items),
            OWN_ITEMS.requirements + requirements,
            OWN_ITEMS.values + values,
        )

    def _items(self, slot: tuple[str, str]) -> Cel:
        return f"{self._part.spec}.?affinity.?{slot[0]}.?{slot[1]}.orValue([])"

    def _slots(self) -> list[tuple[str, str]]:
        slots = {slot for policy in self._policies for slot, _ in policy.lists}
        return [slot for slot in cel.ITEMS if slot in slots]

    # The mutation, and what an object lacks

    def _mutation(self) -> Cel:
        spec, pointer = self._part.spec, self._part.pointer
        labels, tolerations = f"{pointer}/{NODE_SELECTOR}", f"{pointer}/{TOLERATIONS}"
        scheduler = literal(f"{pointer}/{SCHEDULER_NAME}")
        steps = [
            _container("variables.addedLabels.size() > 0", spec, NODE_SELECTOR, labels, "{}"),
            "variables.addedLabels.map(l, l.map(k, "
            + _add(f'"{labels}/" + jsonpatch.escapeKey(k)', "l[k]")
            + ")).flatten()",
            f"variables.replaced.size() > 0 ? [{_add(literal(tolerations), KEPT)}] : []",
            _container(
                "variables.addedTolerations.size() > 0", spec, TOLERATIONS, tolerations, "[]"
            ),
            f"variables.addedTolerations.map(x, {_add(literal(f'{tolerations}/-'), 'x')})",
            f'variables.scheduler == "" ? [] : [{_add(scheduler, "variables.scheduler")}]',
            *self._affinity_steps(),
        ]
        return f"!variables.fits ? [] : [{', '.join(steps)}].flatten()"

    def _affinity_steps(self) -> Iterator[Cel]:
        requires = cel.some(f"{_CONSTRAINS}[{index}]" for index in self._required)
        changed: dict[str, list[Cel]] = {}
        if self._required:
            changed["nodeAffinity"] = [requires]
        for slot in self._slots():
            changed.setdefault(slot[0], []).append(f"variables.{_name(slot)}Added.size() > 0")
        if not changed:
            return
        at, pointer = f"{self._part.spec}.?affinity", f"{self._part.pointer}/affinity"
        anything = cel.some(text for conditions in changed.values() for text in conditions)
        yield _container(f"({anything})", self._part.spec, "affinity", pointer, "{}")
        for name, conditions in changed.items():
            absent = f"({cel.some(conditions)}) && !{at}.?{name}.hasValue()"
            yield f"{absent} ? [{_add(literal(f'{pointer}/{name}'), '{}')}] : []"
        if self._required:
            last = f"variables.terms{max(self._required)}"
            scopes = '"matchExpressions": t.e.map(x, x.r), "matchFields": t.f.map(x, x.r)'
            terms = f"{last}.map(t, {{{scopes}}})"
            path = literal(f"{pointer}/nodeAffinity/{REQUIRED}")
            value = f'{{"{_TERMS}": {terms}}}'
            yield f"({requires}) ? [{_add(path, value)}] : []"
        for slot in self._slots():
            name, path = _name(slot), f"{pointer}/{slot[0]}/{slot[1]}"
            absent = f"variables.{name}Added.size() > 0 && variables.{name}Keys.size() == 0"
            yield f"{absent} ? [{_add(literal(path), '[]')}] : []"
            yield f"variables.{name}Added.map(x, {_add(literal(f'{path}/-'), 'x')})"

    def _lacking(self) -> Iterator[Cel]:
        for index, policy in enumerate(self._policies):
            constraints = (
                *(f"!({literal(key)} in variables.nodeLabels)" for key, _ in policy.node_selector),
                self._lacks_required(index),
            )
            lacks = [
                f"{_CONSTRAINS}[{index}] && ({cel.some(constraints)})",
                *(cel_tolerations.lacks(cel.toleration(item)) for item, _ in policy.tolerations),
                *cel_tolerations.has_default(policy),
                *(
                    f"!({literal(cel.ITEMS[slot].key(item))} in variables.{_name(slot)}Keys)"
                    for slot, items in policy.lists
                    for item, _ in items
                ),
            ]
            yield f"{_MATCHES}[{index}] && (!variables.comparable || {cel.some(lacks)})"


def _name(slot: tuple[str, str]) -> str:
    return f"{slot[0]}{'Required' if slot[1] == REQUIRED else 'Preferred'}"


def _most(number: int, terms: Terms) -> int:
    """The most requirements (0) or texts (1) that one of the terms has."""
    return max(cel.count_parts(term)[number] for term in terms)


def _container(changed: Cel, spec: Cel, name: str, path: str, empty: Cel) -> Cel:
    return f"{changed} && !has({spec}.{name}) ? [{_add(literal(path), empty)}] : []"


def _add(path: Cel, value: Cel) -> Cel:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'
