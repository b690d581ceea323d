from __future__ import annotations

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harbourmaster.controller.exposure.plain import gauge_name, render
from helpers.exposure import metric, values


def render_metrics(*metrics):
    return render(values(*metrics).all()).decode()


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_metric_is_a_gauge_in_keptn_s_shape():
    assert render_metrics(metric("podtatometric", "10"), metric("available-cpus", "0.25")) == (
        "# HELP available_cpus available-cpus\n"
        "# TYPE available_cpus gauge\n"
        "available_cpus 0.25\n"
        "# HELP podtatometric podtatometric\n"
        "# TYPE podtatometric gauge\n"
        "podtatometric 10\n"
    )


def test_nothing_is_a_valid_text():
    assert render_metrics() == ""


def test_what_has_no_value_or_an_old_one_is_not_shown_at_all():
    assert (
        render_metrics(metric("cpu"), metric("memory", "5", age=3600), metric("disk", "NaN")) == ""
    )


@pytest.mark.parametrize(
    ("name", "gauge"),
    [("5xx-rate", "_5xx_rate"), ("a.b-c", "a_b_c"), ("plain", "plain"), ("0", "_0")],
)
def test_names_become_prometheus_names(name, gauge):
    assert gauge_name(name) == gauge


@pytest.mark.parametrize(
    ("text", "shown"),
    [("500m", "0.5"), ("1k", "1000"), ("-3", "-3"), ("1e3", "1000"), ("2Gi", "2147483648")],
)
def test_quantities_become_numbers(text, shown):
    assert render_metrics(metric("cpu", text)).endswith(f"\ncpu {shown}\n")


def test_metrics_of_one_name_are_told_apart_by_labels():
    text = render_metrics(
        metric("cpu", "1"),
        metric("cpu", "2", namespace="dev"),
        metric("a-b", "3"),
        metric("a.b", "4"),
    )
    assert samples(text) == {
        ("cpu", ("name", "cpu"), ("namespace", "prod")): 1,
        ("cpu", ("name", "cpu"), ("namespace", "dev")): 2,
        ("a_b", ("name", "a-b"), ("namespace", "prod")): 3,
        ("a_b", ("name", "a.b"), ("namespace", "prod")): 4,
    }
    assert text.count("# TYPE cpu ") == text.count("# TYPE a_b ") == 1


def test_a_metric_keeps_its_labels_while_another_of_its_name_has_no_value():
    text = render_metrics(metric("cpu", "1"), metric("cpu", namespace="dev"))
    assert samples(text) == {("cpu", ("name", "cpu"), ("namespace", "prod")): 1}


def test_whatever_the_names_the_text_is_valid_and_holds_every_value_once():
    chosen = random.Random(7)  # noqa: S311 - the same names each time
    made = {}
    for number in range(500):
        name = "".join(chosen.choice("ab0.-") for _ in range(3))
        name = f"x{name}x" if name[0] in ".-" or name[-1] in ".-" else name
        namespace = chosen.choice(["prod", "dev"])
        made[namespace, name] = metric(name, str(number), namespace=namespace)
    by_name = samples(render_metrics(*made.values()))
    assert sorted(by_name.values()) == sorted(
        float(obj["status"]["value"]) for obj in made.values()
    )


def test_the_order_of_the_mirror_makes_no_difference():
    metrics = [metric(name, "1", namespace=namespace) for name in "abc" for namespace in ("x", "y")]
    assert render_metrics(*metrics) == render_metrics(*reversed(metrics))
