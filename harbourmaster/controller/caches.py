"""The caches that several controllers read: Namespaces, and the Secret with our certificates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import NAMESPACES, SECRETS
from harbourmaster.controller.objects import decode_object
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import Mistake, opt_in_mistakes
from harbourmaster.gates.waits import REQUIRED, WAIT_FOR_KEY
from harbourmaster.kube.reflector import Reflector
from harbourmaster.registration.desired import GATES_LABEL

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics


class LabelledNamespace(Struct, frozen=True, gc=False):
    """The fields of a Namespace that decide about its gates."""

    name: str
    uid: str
    resource_version: str
    is_annotated: bool
    """Whether the annotation has exactly the value that enables gates (keptn-spec 2.3)."""
    requires_waits: bool
    """Whether its pods must not start without the objects for which they wait."""
    label: str | None
    """The value of our label; None without it."""
    has_labels: bool
    is_ending: bool
    mistakes: tuple[Mistake, ...] = ()
    """The reasons why it has no gates although it seems to ask for them."""

    @property
    def is_labelled(self) -> bool:
        """Whether it must have our label: its pods are not created while the webhook is down."""
        return self.is_annotated or self.requires_waits


class _Metadata(Struct, gc=False, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Object(Struct, gc=False):
    metadata: _Metadata


_decode_object: Final = msgspec.json.Decoder(_Object).decode


def decode_namespace(raw: msgspec.Raw | bytes) -> LabelledNamespace:
    """Decode a Namespace from JSON."""
    metadata = _decode_object(raw).metadata
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    return LabelledNamespace(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        is_annotated=annotations.get(OPT_IN_KEY) == OPT_IN,
        requires_waits=labels.get(WAIT_FOR_KEY) == REQUIRED,
        label=labels.get(GATES_LABEL),
        has_labels=bool(labels),
        is_ending=metadata.deletion_timestamp is not None,
        mistakes=opt_in_mistakes(metadata.name, annotations, labels),
    )


def namespace_cache(client: Client, metrics: WatchMetrics) -> Reflector[LabelledNamespace]:
    """Create the cache of all Namespaces, of which it reads the metadata."""
    return Reflector(client, NAMESPACES, decode_namespace, metrics=metrics, metadata_only=True)


def secret_cache(
    client: Client, metrics: WatchMetrics, namespace: str, name: str
) -> Reflector[dict[str, Any]]:
    """Create the cache of one Secret."""
    return Reflector(
        client,
        SECRETS,
        partial(decode_object, SECRETS),
        namespace=namespace,
        field_selector=f"metadata.name={name}",
        metrics=metrics,
    )
