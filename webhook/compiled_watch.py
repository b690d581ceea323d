"""Which policies the API server enforces, as far as every API server is sure to know it by now.

The rule for leaving a policy out is on the safe side, because a policy that both enforce changes a
pod once and one that nobody enforces is missed: every change of a compiled object, and every doubt
about them, puts all policies back at once; only after QUIET seconds without any is one left out.
So no replica has to know what another one saw, and a replica that starts knows nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from harbourmaster.api.resources import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS
from harbourmaster.kube.reflector import Reflector
from harbourmaster.policies.enforcement import (
    FINAL_LABEL,
    POLICY_LABEL,
    QUIET,
    decode_compiled,
    enforced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.backoff import Backoff
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.policies.enforcement import CompiledObject, Enforced


class CompiledWatch:
    """Calls ``on_enforced`` with what may be left out, each time that this may have changed."""

    def __init__(
        self,
        client: Client,
        on_enforced: Callable[[Enforced], None],
        *,
        backoff: Backoff,
        metrics: WatchMetrics | None = None,
        quiet: float = QUIET,
    ) -> None:
        self._on_enforced = on_enforced
        self._quiet = quiet
        self._timer: asyncio.TimerHandle | None = None

        def watch(resource: Resource, label: str) -> Reflector[CompiledObject]:
            return Reflector(
                client,
                resource,
                decode_compiled,
                label_selector=label,
                on_change=self._changed,
                on_state=self._changed,
                backoff=backoff,
                metrics=metrics,
            )

        self._mutations = watch(MUTATING_POLICIES, POLICY_LABEL)
        self._bindings = watch(MUTATING_POLICY_BINDINGS, FINAL_LABEL)
        self.reflectors = (self._mutations, self._bindings)

    def _changed(self, _keys: object = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_enforced(frozenset())
        if all(each.synced.is_set() and each.error is None for each in self.reflectors):
            found = enforced(self._mutations.store.values(), self._bindings.store.values())
            if found:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._quiet, self._on_enforced, found)
