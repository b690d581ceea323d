"""Which policies the API server enforces, as far as every API server is sure to know it by now.

The rule for leaving a policy out is on the safe side, because a policy that both enforce changes a
pod once and one that nobody enforces is missed: every change of a compiled object, and every doubt
about them, puts all policies back at once; only after QUIET seconds without any is one left out.
So no replica has to know what another one saw, and a replica that starts knows nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.resources import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.reflector import Reflector
from harbourmaster.policies.enforcement import (
    FINAL_LABEL,
    POLICY_LABEL,
    QUIET,
    UNKNOWN,
    UNSUPPORTED,
    Known,
    decode_compiled,
    known_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.policies.enforcement import CompiledObject


class CompiledWatch:
    """Keeps ``known``, and calls ``on_change`` when it changed."""

    def __init__(
        self,
        client: Client,
        on_change: Callable[[], None],
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        metrics: WatchMetrics | None = None,
        quiet: float = QUIET,
    ) -> None:
        self.known = Known()
        self._on_change = on_change
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

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    def _changed(self, _keys: object = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        mutations, bindings = self._mutations, self._bindings
        if any(
            not reflector.synced.is_set() or reflector.error is not None
            for reflector in self.reflectors
        ):
            self.known = Known(UNKNOWN)
        elif mutations.absent or bindings.absent:
            self.known = Known(UNSUPPORTED)
        else:
            self.known = known_of(mutations.store.values(), bindings.store.values())
            if self.known.enforced:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._quiet, self._settle)
        self._on_change()

    def _settle(self) -> None:
        self._timer = None
        self.known = replace(self.known, left_out=self.known.enforced)
        self._on_change()
