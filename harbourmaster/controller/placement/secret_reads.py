"""Reads Secrets by name, because nothing of ours lists or watches them.

These are kubeconfigs of member clusters, and Secrets that applications copy to their cluster.

So no event tells of a change. The Secret is read periodically, and at once if a session fails:
first only its version, and the rest if the version is another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import SECRETS
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.placement.deployed import Copies, Secret, copy_of, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.kube.client import Client
    from harbourmaster.placement.deployed import DeployedApplication, SecretCopy
    from harbourmaster.placement.model import KubeconfigKey
    from harbourmaster.providers.query_client import PerTargetLimit

_USUAL: Final = ("kubeconfig", "value", "config", "kubeconfig.yaml")
READS: Final = 8
"""Secrets that are read at the same time."""
SHORTEST: Final = 1.0
"""Seconds between two looks at one Secret, no matter who asks for the second."""
_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until the next look at what is of no use, before that is done as for all others."""


class _Secret(Struct, frozen=True):
    metadata: Metadata
    data: dict[str, bytes] | None = None


_decode: Final = msgspec.json.Decoder(_Secret).decode
_decode_copied: Final = msgspec.json.Decoder(Secret).decode


class Kubeconfig:
    """The value of one key of a Secret while ``run`` runs; either ``text`` or ``fault`` is set."""

    def __init__(  # noqa: PLR0913 - what to read, how, and whom to tell
        self,
        client: Client,
        namespace: str,
        reference: KubeconfigKey,
        *,
        seconds: float,
        turns: PerTargetLimit,
        on_change: Callable[[], Awaitable[None]],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``seconds`` between two looks; ``turns`` are shared by all who read."""
        self.source = f"Secret {namespace}/{reference.name}, key {reference.key}"
        self.text: bytes | None = None
        self.fault = ""
        """Why there is none, in one line."""
        self.is_of_use = True
        """For who reads it to say: what is of none is looked at again sooner."""
        self.is_kept = False
        """Whether what was read counts also when its Secret is gone."""
        self._client = client
        self._namespace = namespace
        self._reference = reference
        self._seconds = seconds
        self._turns = turns
        self._on_change = on_change
        self._chance = chance
        self._version = ""
        self._told: tuple[bytes | None, str] = (None, "")
        self._is_due = False
        self._failures = 0
        self._asked = asyncio.Event()

    def look(self, *, again: bool = False) -> None:
        """Find out soon whether it has changed; ``again`` reports it even if it has not."""
        self._is_due = self._is_due or again
        self._asked.set()

    async def run(self) -> None:
        """Read it again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._asked.clear()
            async with self._turns.turn(None, self._namespace):
                await self._read()
            looked = loop.time()
            before = (self.text, self.fault)
            if before != self._told or self._is_due:
                self._failures, self._is_due = 0, False
                await self._on_change()
                self._told = before
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait()):
                    await self._asked.wait()
            await asyncio.sleep(looked + SHORTEST - loop.time())

    def _wait(self) -> float:
        """Return the seconds until the next periodic read."""
        seconds = self._seconds * (0.8 + 0.2 * self._chance())
        if self.text is not None and self.is_of_use:
            return seconds
        wait = _AGAIN[self._failures] if self._failures < len(_AGAIN) else seconds
        self._failures += 1
        return min(wait, seconds)

    async def _read(self) -> None:
        try:
            if self._version and await self._is_as_before():
                return
            secret = _decode(await self._get(metadata_only=False))
        except NotFoundError:
            if not self.is_kept or self.text is None:
                self._set(None, "the Secret does not exist")
        except ForbiddenError:
            if self.text is None:
                todo = f"run harbourmaster grant secrets -n {self._namespace}"
                self._set(None, f"missing permission to read it: {todo}")
        except (ApiError, ValueError) as error:
            # A ValueError is of the answer, or of a name such as "..".
            # What was read counts until it is known to be another.
            if self.text is None:
                self._set(None, f"cannot be read: {error}")
        else:
            data = secret.data or {}
            text = data.get(self._reference.key)
            # Usual keys only: users that write Clusters must not learn those of other Secrets.
            near = next((f", but {key}: set key: {key}" for key in _USUAL if data.get(key)), "")
            self._set(text or None, "" if text else f"the Secret does not have this key{near}")
            self._version = secret.metadata.resource_version

    async def _is_as_before(self) -> bool:
        secret = _decode(await self._get(metadata_only=True))
        return secret.metadata.resource_version == self._version

    async def _get(self, *, metadata_only: bool) -> bytes:
        name = self._reference.name
        return await self._client.get(SECRETS, name, self._namespace, metadata_only=metadata_only)

    def _set(self, text: bytes | None, fault: str) -> None:
        self.text, self._version = text, ""
        self.fault = f"{self.source}: {fault}" if fault else ""


async def read_copies(context: DeploymentContext, application: DeployedApplication) -> Copies:
    """Return the Secrets that an application copies. Raises ApiError of the management cluster."""
    manifests, faults = [], []
    for number, wanted in enumerate(application.spec.secrets):
        secret = await _read_copied(context, application, wanted)
        if isinstance(secret, str):
            faults.append(f"secrets[{number}]: {secret}")
        else:
            manifests.append(copy_of(wanted, secret))
    until = context.now().timestamp() + context.settings.kubeconfig_interval_seconds
    generation = application.metadata.generation
    return Copies(() if faults else tuple(manifests), "; ".join(faults), generation, until)


async def _read_copied(
    context: DeploymentContext, application: DeployedApplication, wanted: SecretCopy
) -> Secret | str:
    """The Secret, or why it is not copied."""
    namespace = application.metadata.namespace
    place = f"Secret {namespace}/{wanted.name}"
    try:
        secret = _decode_copied(await context.client.get(SECRETS, wanted.name, namespace))
    except (NotFoundError, ValueError):
        # Some texts, such as "..", cannot be the name of an object.
        return f"{place} does not exist: create it, or remove it from spec.secrets"
    except ForbiddenError:
        todo = f"run harbourmaster grant secrets -n {namespace}"
        return f"{place}: missing permission to read it: {todo}"
    clusters = context.caches.clusters.store.values()
    here = [cluster for cluster in clusters if cluster.metadata.namespace == namespace]
    names = {cluster.metadata.name: cluster.spec.kubeconfig_secret_ref for cluster in here}
    users = [
        name for name, reference in names.items() if reference and reference.name == wanted.name
    ]
    return refusal(application.metadata, secret, users) or secret
