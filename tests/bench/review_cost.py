"""The cost of a review over TLS, compared in pairs; also ``review_cost.py`` alone.

Against a constant answer of aiohttp and against the least that Python and TLS can do; with
``--against COMMAND`` also against another version's ``harbourmaster``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import engine  # noqa: E402
from load import COUNTER  # noqa: E402
from servers import (  # noqa: E402
    PAIRS,
    REQUESTS,
    harbourmaster,
    in_turn,
    load,
    medians,
    ratio,
    serve_constant,
    write_policies,
)

from helpers.objects import body, large_deployment  # noqa: E402

OPEN_RATES = (1000, 4000)


def compare_with_constant(folder, *, pairs=PAIRS, requests=REQUESTS, against=None, gated=False):
    """One 5 kB object, one matching policy: by name each server's runs, and the ratios to it."""
    payload = folder / "review.json"
    options = ()
    if gated:
        payload.write_bytes(body(engine.large_pod(engine.TRACKED)))
        namespace = folder / "namespace.yaml"
        namespace.write_text(yaml.safe_dump(engine.NAMESPACES[True]))
        options = ("--namespaces", str(namespace))
    else:
        payload.write_bytes(body(large_deployment()))
    policies = write_policies(folder / "one", [engine.matching(0)])
    answer = folder / "answer.json"
    known = (
        engine.in_namespace(engine.matching(0), has_gates=True)
        if gated
        else engine.snapshot(engine.matching(0))
    )
    answer.write_bytes(
        engine.answer(payload.read_bytes(), engine.Engine(known, engine.SETTINGS))[0]
    )
    servers = {"one policy": harbourmaster(folder, policies, *options)}
    ours = servers["one policy"]
    servers |= {kind: serve_constant(kind, folder, answer) for kind in ("least", "constant")}
    if against is not None:
        servers["another version"] = harbourmaster(folder, policies, *options, command=against)
    try:
        asked = {name: (server, payload) for name, server in servers.items()}
        runs = in_turn(asked, folder, pairs=pairs, requests=requests)
        numbered = folder / "numbered.json"
        selector = {"example.com/batch": COUNTER.decode()}
        numbered.write_bytes(body(large_deployment(nodeSelector=selector)))
        new = medians([load(ours, folder, numbered, requests) for _ in range(5)])
        opened = {
            rate: medians([load(ours, folder, payload, rate * 3, rate) for _ in range(5)])
            for rate in (OPEN_RATES if against is None else ())
        }
    finally:
        for server in servers.values():
            server.stop()
    return {
        "review_bytes": payload.stat().st_size,
        "closed": {name: medians(latencies) for name, latencies in runs.items()}
        | {"one policy, every pod new": new},
        "ratios": {
            name: ratio(runs["one policy"], latencies)
            for name, latencies in runs.items()
            if name != "one policy"
        },
        "open": opened,
    }


def ratio_lines(figures):
    """Yield the cost of one policy relative to each of the others."""
    for name, ratios in figures["ratios"].items():
        yield (
            f"One policy costs {ratios['median']:.2f} times the CPU of {name} "
            f"(95 % confidence: {ratios['min']:.2f} to {ratios['max']:.2f})."
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMAND")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--gated", action="store_true", help="a pod that waits for its checks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = compare_with_constant(Path(name), **vars(options))
    for kind, run in figures["closed"].items():
        print(f"{kind}: {run['cpu_us']:.1f} us, p99 {run['p99_ms']:.2f} ms")  # noqa: T201
    print("\n".join(ratio_lines(figures)))  # noqa: T201


if __name__ == "__main__":
    main()
