from __future__ import annotations

import pytest

from harbourmaster.playground import installation
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.installation import CONFIGURATIONS, Trial, count_reviews, missing

METRICS = """\
# TYPE harbourmaster_admission_duration_seconds histogram
harbourmaster_admission_duration_seconds_bucket{le="0.1",outcome="mutated"} 5.0
harbourmaster_admission_duration_seconds_count{outcome="mutated"} 3.0
harbourmaster_admission_duration_seconds_count{outcome="unmatched"} 2.0
harbourmaster_connections 9.0
"""


@pytest.fixture
def cluster(monkeypatch):
    """An API server and two webhooks; what each request does is for the test to say."""

    class Cluster:
        reviews = 0
        missing = ()

        def request(self, _port, _context, method, path, _body=None):
            self.asked.append((method, path))
            if path.rpartition("/")[2] in self.missing:
                raise PlaygroundError(f"{method} {path}: 404")
            if method == "POST":
                self.reviews += self.counts
            return b"{}"

        def ask(self, url):
            if url in self.missing:
                raise PlaygroundError("no answer")
            return 200, f"{installation.REVIEWS} {self.reviews}\n"

    cluster = Cluster()
    cluster.counts = 1
    cluster.asked = []
    monkeypatch.setattr(installation.api, "request", cluster.request)
    monkeypatch.setattr(installation.api, "ask", cluster.ask)
    return cluster


def test_reviews_of_every_outcome_are_counted_once():
    assert count_reviews(METRICS) == 5


def test_everything_is_asked_for_until_something_is_missing(cluster):
    assert missing(1, None, ["/apis/a", "/apis/b"]) is None
    cluster.missing = ("b?limit=1",)
    assert missing(1, None, ["/apis/a", "/apis/b", "/apis/c"]) == "GET /apis/b?limit=1: 404"
    assert cluster.asked[-1] == ("GET", "/apis/b?limit=1")


def test_both_configurations_are_needed():
    assert [path.split("/")[-2:] for path in CONFIGURATIONS] == [
        ["mutatingwebhookconfigurations", "harbourmaster"],
        ["validatingwebhookconfigurations", "harbourmaster"],
    ]


@pytest.fixture
def trial(cluster):
    return Trial(1, None, ["http://a", "http://b"])


NOBODY = "the API server asks no webhook about a pod"


def test_a_pod_that_a_webhook_reviewed_is_seen_at_the_next_look(cluster, trial):
    assert trial.why_not() == NOBODY
    assert trial.why_not() is None
    assert cluster.asked == [("POST", "/api/v1/namespaces/default/pods?dryRun=All")]


def test_reviews_of_before_do_not_count(cluster, trial):
    cluster.reviews = 7
    cluster.counts = 0
    assert [trial.why_not() for _ in range(3)] == [NOBODY] * 3


def test_a_refused_pod_is_no_answer(cluster, trial):
    cluster.missing = ("pods?dryRun=All",)
    assert trial.why_not().endswith("404")


def test_a_webhook_that_does_not_tell_is_no_answer(cluster, trial):
    cluster.missing = ("http://b/metrics",)
    assert trial.why_not() == "no answer"
