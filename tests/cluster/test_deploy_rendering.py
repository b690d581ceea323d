from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.manifests import (
    BASES,
    COMPONENTS,
    all_pairs,
    combinations,
    objects,
    parse_shared_objects,
    render,
)


@pytest.mark.timeout(600)
def test_every_component_every_pair_and_all_render_on_every_base():
    chosen = [*combinations(), *all_pairs()]
    assert {(base, *COMPONENTS) for base in BASES} <= set(chosen)
    with ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda combination: render(*combination), chosen)
        for combination, text in zip(chosen, texts, strict=True):
            assert objects(*combination) == parse_shared_objects(text), combination
            kinds = Counter(line for line in text.splitlines() if line.startswith("kind: "))
            assert kinds["kind: Deployment"] == 2 + ("scheduler" in combination), combination
            own = kinds["kind: MutatingWebhookConfiguration"]
            assert own == ("with-certmanager" in combination), combination
            assert kinds["kind: NetworkPolicy"] == 1 + 3 * ("network-policy" in combination)
            assert kinds["kind: PrometheusRule"] == ("monitoring" in combination)
