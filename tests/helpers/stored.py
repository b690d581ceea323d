"""Caches filled from a fake API server, without a watch."""

from __future__ import annotations

import msgspec


def sync(api, *caches):
    """Bring caches, each with its resource and the class of its objects, to what is stored."""
    for cache, resource, kind in caches:
        cache.store.replace_all(
            {
                f"{namespace}/{name}": msgspec.convert(obj, kind)
                for (namespace, name), obj in api.objects.all(resource).items()
            }
        )
