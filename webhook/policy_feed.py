"""Policies from the watches; those whose content changed are decoded and compiled in a thread.

A large policy takes up to a second. Its former version stays in force meanwhile, namespaces take
turns, and of several waiting versions only the last is compiled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.policies.compiled import compile_policy, undecodable_policy
from harbourmaster.policies.enforcement import API_SERVER
from harbourmaster.policies.index import PolicySet
from harbourmaster.webhook.policy_objects import SMALL, decode_projected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.enforcement import Enforced

Content: TypeAlias = "bytes | str"
"""A policy as ``policy_objects.content_of`` gives it, or why it can't be used."""

_AT_ONCE: Final = 16 * 1024
"""Bytes of the small ones that are compiled before a large one has its turn."""
_PAUSE: Final = 0.02
"""Seconds for which changes are gathered."""
_SMALL_ONES: Final = ""


class PolicyFeed:
    """Keeps ``policies`` at what ``change`` is told, while ``run`` runs."""

    def __init__(
        self, on_policies: Callable[[PolicySet], None], *, keeps_sources: bool = False
    ) -> None:
        """``on_policies`` gets each new set; ``keeps_sources`` keeps policies as written, too."""
        self.policies = PolicySet()
        self.audited = PolicySet(audits=True)
        """The policies in Audit mode, which are only evaluated."""
        self._left_out: Enforced = frozenset()
        self._on_policies = on_policies
        self._keeps_sources = keeps_sources
        self._compiled: dict[str, CompiledPolicy] = {}
        self._waiting: dict[str, Content] = {}
        """Versions that are not being compiled yet, by reference."""
        self._turns: dict[str, dict[str, None]] = {}
        """References by namespace, or those of small policies, in the order of their turns."""
        self._begun: set[str] = set()
        self._was_small = False
        self._woken = asyncio.Event()
        self._awaited: list[set[str]] = []
        self._progress = asyncio.Event()

    def change(self, contents: Mapping[str, Content | None]) -> None:
        """Take the current policies by reference; None for deleted ones."""
        gone = [reference for reference, content in contents.items() if content is None]
        for reference, content in contents.items():
            # One that has grown must not have its turn among the small ones.
            self._turns.get(_SMALL_ONES, {}).pop(reference, None)
            if content is None:
                self._waiting.pop(reference, None)
                self._begun.discard(reference)
                continue
            self._waiting[reference] = content
            kind, _, name = reference.partition(" ")
            turn = _SMALL_ONES if len(content) <= SMALL else name.rpartition("/")[0] or kind
            self._turns.setdefault(turn, {})[reference] = None
        if gone:
            self._take(dict.fromkeys(gone))
        self._woken.set()

    def leave_out(self, enforced: Enforced) -> None:
        """Leave to the API server what it enforces, of the policies that name it alone."""
        if enforced == self._left_out:
            return
        self._left_out = enforced
        placed = {
            reference: self._with_enforcer(policy) for reference, policy in self._compiled.items()
        }
        self._take({name: new for name, new in placed.items() if new is not self._compiled[name]})

    async def run(self) -> None:
        """Compile what changes, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(_PAUSE)
            while self._turns:
                batch = self._next()
                self._begun = set(batch)
                compiled = await asyncio.to_thread(self._compile, batch)
                kept, self._begun = self._begun, set()
                self._take({reference: compiled[reference] for reference in kept})
                if self._was_small and sum(map(len, batch.values())) < _AT_ONCE:
                    await asyncio.sleep(_PAUSE)

    async def wait_until_compiled(self) -> None:
        """Wait until some version of each policy is compiled that is known now."""
        awaited = self._waiting.keys() | self._begun
        self._awaited.append(awaited)
        while awaited:
            await self._progress.wait()
        self._awaited.remove(awaited)

    def _next(self) -> dict[str, Content]:
        """Take the next batch: one large policy, or every other time some small ones."""
        turn = next(iter(self._turns))
        if _SMALL_ONES in self._turns and not self._was_small:
            turn = _SMALL_ONES
        self._was_small = turn == _SMALL_ONES
        references, room = self._turns.pop(turn), _AT_ONCE
        batch: dict[str, Content] = {}
        while references and room > 0:
            reference = next(iter(references))
            del references[reference]
            # It is gone, or had its turn among those of its former size.
            content = self._waiting.pop(reference, None)
            if content is not None:
                batch[reference] = content
                room -= len(content) if self._was_small else _AT_ONCE
        if references:
            self._turns[turn] = references
        return batch

    def _compile(self, batch: Mapping[str, Content]) -> dict[str, CompiledPolicy]:
        return {
            reference: _compile_policy(reference, batch[reference], keeps=self._keeps_sources)
            for reference in batch
        }

    def _take(self, changes: Mapping[str, CompiledPolicy | None]) -> None:
        former = [self._compiled.pop(change) for change in changes if change in self._compiled]
        new = {
            name: self._with_enforcer(policy)
            for name, policy in changes.items()
            if policy is not None
        }
        self._compiled |= new
        for awaited in self._awaited:
            awaited.difference_update(changes)
        self._progress.set()
        self._progress = asyncio.Event()
        if former or new:
            self.policies = self.policies.with_changes(former, new.values())
            self.audited = self.audited.with_changes(
                (policy for policy in former if policy.is_audited),
                (policy for policy in new.values() if policy.is_audited),
            )
            self._on_policies(self.policies)

    def _with_enforcer(self, policy: CompiledPolicy) -> CompiledPolicy:
        is_left_out = (
            policy.enforcement == API_SERVER
            and not policy.is_audited
            and (policy.reference, policy.hash) in self._left_out
        )
        if policy.is_left_out == is_left_out:
            return policy
        return replace(policy, is_left_out=is_left_out)


def _compile_policy(reference: str, content: Content, *, keeps: bool) -> CompiledPolicy:
    """Compile a policy; the substitute for an invalid one warns wherever that might apply."""
    try:
        if isinstance(content, str):
            raise MalformedError(content)  # noqa: TRY301 - told like what decoding finds
        compiled = compile_policy(decode_projected(content))
    except Exception as error:  # noqa: BLE001 - one bad policy harms no other, whatever it is
        fault = str(error) if isinstance(error, MalformedError) else "it can't be compiled"
        namespace = reference.partition(" ")[2].rpartition("/")[0]
        compiled = undecodable_policy(reference, namespace or None, fault)
    return replace(compiled, source=content) if keeps and isinstance(content, bytes) else compiled
