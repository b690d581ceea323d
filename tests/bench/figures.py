"""Ratios of figures, their comparison with the record, and the page of the manual that shows it.

All ratios are of costs: lower is better.
"""

from __future__ import annotations

import json
import statistics
import time
from math import comb
from pathlib import Path

HERE = Path(__file__).parent
RECORD = HERE / "record.json"
"""The figures by part, with their date, and the machine that they were measured on."""
OTHERS = HERE / "others.json"
"""Figures of other webhooks, which cannot be measured again here."""
PAGE = HERE.parents[1] / "docs/operations/performance.md"
TEMPLATE = PAGE.with_suffix(".md.in")
"""The page with the names of figures, as ``str.format`` takes them."""
ROUNDS = 7
"""Timings of each case; with fewer than six, no interval has a confidence of 95 %."""
TOLERATED = 1.1


def interval(values):
    """Median and the order statistics that hold the true one in at least 95 % of samples."""
    ordered = sorted(values)
    count = len(ordered)
    rank, tail = 0, 1 / 2**count
    while tail + comb(count, rank + 1) / 2**count <= 0.025:
        rank += 1
        tail += comb(count, rank) / 2**count
    return {
        "median": statistics.median(ordered),
        "min": ordered[rank],
        "max": ordered[-1 - rank],
        "better": "lower",
    }


def ratio(rounds, case, base):
    """Return the interval of the ratio of two cases, which each round has measured in turn."""
    return interval(figures[case] / figures[base] for figures in rounds)


def medians(rounds):
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def reference_ms():
    """Something fixed that only uses the processor, to tell a slow machine from slow code."""
    before = time.process_time()
    total = 0
    for index in range(1_000_000):
        total += index & 7
    return (time.process_time() - before) * 1e3


def worse_ratios(record, run):
    """Return sentences, by part and name, on ratios of the record that are worse in the run.

    Both are figures by part; only the parts of the run are compared. A ratio is worse if its median
    is more than a tenth above that of the record and the intervals do not overlap; one that the
    run lacks counts as worse.
    """
    sentences = {}
    for part, figures in run.items():
        accept = f"or accept it: make bench PART={part} RECORD=1"
        measured = figures.get("ratios", {})
        for name, was in record.get(part, {}).get("ratios", {}).items():
            now = measured.get(name)
            if now is None:
                step = f"measure it, {accept}"
                sentences[part, name] = f"ratio not measured: {part}: {name}: {step}"
            elif now["median"] > TOLERATED * was["median"] and now["min"] > was["max"]:
                step = f"find the change that caused it, {accept}"
                values = f"was {describe_ratio(was)}, is {describe_ratio(now)}"
                sentences[part, name] = f"ratio became worse: {part}: {name}: {values}: {step}"
    return sentences


def describe_ratio(figure):
    return f"{figure['median']:.2f} ({figure['min']:.2f} to {figure['max']:.2f})"


def list_figures(figures, path=""):
    """Yield a line for each figure of nested dicts."""
    for name, value in figures.items():
        place = f"{path}, {name}" if path else name
        if isinstance(value, dict) and "median" in value:
            yield f"{place}: {describe_ratio(value)}"
        elif isinstance(value, dict):
            yield from list_figures(value, place)
        else:
            yield f"{place}: {value:,.4g}" if isinstance(value, float) else f"{place}: {value}"


def read_record():
    return json.loads(RECORD.read_text()) if RECORD.exists() else {"machine": {}, "parts": {}}


def shorten(figures):
    """Return nested figures with four significant digits."""
    if isinstance(figures, dict):
        return {name: shorten(value) for name, value in figures.items()}
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def update_record(record, machine, parts):
    """Return the record with the parts of a run; those of another machine are left out."""
    known = record["parts"] if record["machine"] == machine else {}
    return {"machine": machine, "parts": dict(sorted((known | shorten(parts)).items()))}


def render_page(template, record, others):
    """Return the text of the page. Raises KeyError for a figure that the record lacks."""
    dates = sorted({figures["date"] for figures in record["parts"].values()})
    date = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return template.format(**record["parts"], machine=record["machine"], date=date, others=others)


def read_page():
    """Return the text of the page by the record."""
    return render_page(TEMPLATE.read_text(), read_record(), json.loads(OTHERS.read_text()))
