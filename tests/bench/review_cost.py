"""The cost of a review over TLS, compared in pairs; also ``review_cost.py`` alone.

Against a constant answer of aiohttp, the least that Python and TLS can do, and the floor, which
decodes the review too; with ``--against COMMAND`` also against another version's ``harbourmaster``.
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
from constant_server import PROTOCOLS  # noqa: E402
from figures import describe_ratio, medians  # noqa: E402
from load import COUNTER  # noqa: E402
from servers import (  # noqa: E402
    PAIRS,
    REQUESTS,
    harbourmaster,
    in_turn,
    ratio_of_runs,
    serve_constant,
    write_policies,
)

from helpers.objects import body, large_deployment  # noqa: E402

OPEN_SHARE = 0.8
"""The load of the open loop, as a share of the rate at which the constant server answers."""
OPEN_SECONDS = 2
NEW = "one policy, every pod new"


def measure(folder, *, pairs=PAIRS, requests=REQUESTS, against=None, gated=False):
    """One 5 kB object, one matching policy: by name each server's medians, and ratios of them."""
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
    ours = harbourmaster(folder, policies, *options)
    servers = {"one policy": ours}
    servers |= {kind: serve_constant(kind, folder, answer) for kind in (*PROTOCOLS, "constant")}
    if against is not None:
        servers["another version"] = harbourmaster(folder, policies, *options, command=against)
    asked = {name: (server, payload) for name, server in servers.items()}
    if against is None:
        numbered = folder / "numbered.json"
        selector = {"example.com/batch": COUNTER.decode()}
        numbered.write_bytes(body(large_deployment(nodeSelector=selector)))
        asked[NEW] = (ours, numbered)
    try:
        runs = in_turn(asked, folder, pairs=pairs, requests=requests)
        ratios = {
            f"CPU, one policy / {name}": ratio_of_runs(runs, "one policy", name)
            for name in runs
            if name not in {"one policy", NEW}
        }
        figures = {name: medians(rounds) for name, rounds in runs.items()}
        if against is None:
            ratios["CPU, every pod new / one policy"] = ratio_of_runs(runs, NEW, "one policy")
            rate = round(OPEN_SHARE * figures["constant"]["per_second"])
            opened = {name: asked[name] for name in ("one policy", "constant")}
            runs = in_turn(opened, folder, pairs=pairs, requests=rate * OPEN_SECONDS, rate=rate)
            ratios["p99 at 80 % load, one policy / constant"] = ratio_of_runs(
                runs, "one policy", "constant", "p99_ms"
            )
            figures |= {f"{name}, 80 % load": medians(rounds) for name, rounds in runs.items()}
    finally:
        for server in servers.values():
            server.stop()
    return {"review_bytes": payload.stat().st_size, "servers": figures, "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMAND")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--gated", action="store_true", help="a pod that waits for its checks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), **vars(options))
    for kind, run in figures["servers"].items():
        print(f"{kind}: {run['cpu_us']:.1f} us, p99 {run['p99_ms']:.2f} ms")  # noqa: T201
    for kind, figure in figures["ratios"].items():
        print(f"{kind}: {describe_ratio(figure)}")  # noqa: T201


if __name__ == "__main__":
    main()
