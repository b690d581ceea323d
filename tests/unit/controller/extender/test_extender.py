"""The answers to a scheduler, and the port that gives them: TLS, limits, defects and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from datetime import timedelta
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
import trustme
from prometheus_client import CollectorRegistry

from harbourmaster.api.times import utc_now
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.model import BundleFiles
from harbourmaster.certs.rotation import SPARE
from harbourmaster.certs.store import ensure
from harbourmaster.controller.extender import extender as room
from harbourmaster.controller.extender.extender import (
    AVOIDING,
    FILTER,
    FOREIGN,
    FREE,
    MALFORMED,
    MAX_BODY_BYTES,
    PREEMPT,
    REFUSED,
    UNKNOWN,
    VERBS,
    WAITS,
    Answers,
    Extender,
    ExtenderMetrics,
)
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.lifecycle.model import FailedNode
from harbourmaster.serving.certificates import SecretCertificate, tls_options
from harbourmaster.serving.settings import StartError
from helpers.certificates import strict_client, with_certificate
from helpers.patience import PATIENCE
from helpers.scheduler import (
    CHECKED,
    NODES,
    NOW,
    PASSED,
    VERSION_NAME,
    Mirror,
    filter_body,
    preempt_body,
    version,
)
from helpers.scheduler import pod as pod_of

JSON = {"Content-Type": "application/json"}


class ServedExtender:
    """A port, and a scheduler that asks there."""

    def __init__(self, background, folder, client_ca=None, client_cn=None):
        self._background, self._folder = background, folder
        self.data = {}
        self.client = None
        self.mirror = Mirror(version(**PASSED))
        self.registry = CollectorRegistry()
        self.answers = Answers(
            self.mirror, deadline=300, now=lambda: NOW, scheduler="keptn-scheduler"
        )
        self.late = timedelta()
        self.leaf = SecretCertificate(
            "extender",
            tls_options(client_ca, client_cn),
            lambda: self.data,
            lambda: utc_now() + self.late,
            holds=True,
        )
        self.extender = Extender(
            self.answers,
            self.leaf,
            ExtenderMetrics(self.registry),
            host="127.0.0.1",
            port=0,
            client_cn=client_cn,
        )

    def start(self):
        return self._background(self.extender.run())

    def issue(self, folder="certs", *, overlap=b""):
        """A new authority in each folder, and its leaf; ``overlap`` is trusted besides."""
        directory = self._folder / folder
        directory.mkdir()
        files = ensure(directory, ("localhost",), utc_now()).files
        authorities = files.ca_crt + overlap
        self.data = {"ca.crt": authorities, "tls.crt": files.tls_crt, "tls.key": files.tls_key}
        self.leaf.changed()

    async def ask(self, verb, body, *, headers=JSON, path=room.PATH, method="POST", authority=None):
        context = strict_client(authority or self.data["ca.crt"])
        if self.client is not None:
            with_certificate(context, self.client, self._folder)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                f"{self.extender.site.url}{path}/{verb}",
                data=body,
                headers=headers,
                server_hostname="localhost",
            ) as answer,
        ):
            return answer.status, await answer.text()

    def answer_count(self, verb, outcome):
        labels = {"verb": verb, "outcome": outcome}
        return self.registry.get_sample_value("harbourmaster_extender_answers_total", labels)


@pytest.fixture
async def port(background, tmp_path):
    extender = ServedExtender(background, tmp_path)
    extender.issue()
    extender.start()
    async with asyncio.timeout(PATIENCE):
        await extender.extender.listening.wait()
    return extender


async def test_both_verbs_are_answered_and_counted(port):
    status, text = await port.ask("filter", filter_body())
    assert (status, json.loads(text)) == (200, {"NodeNames": list(NODES)})
    port.mirror.store.put("prod/shop-waiter-1.0", version(**CHECKED))
    status, text = await port.ask("preempt", preempt_body())
    assert (status, json.loads(text)) == (200, {"NodeNameToMetaVictims": {}})
    assert port.answer_count("filter", FREE) == 1
    assert port.answer_count("preempt", "waits") == 1
    assert port.answer_count("filter", "defect") == 0


@pytest.mark.claim("W13")
async def test_only_a_client_with_the_right_certificate_is_answered(background, tmp_path):
    authority, stranger = trustme.CA(), trustme.CA()
    file = tmp_path / "clients.crt"
    authority.cert_pem.write_to_path(str(file))
    port = ServedExtender(background, tmp_path, str(file), "scheduler")
    port.issue()
    port.start()
    async with asyncio.timeout(PATIENCE):
        await port.extender.listening.wait()

    def known_as(issuer, name):
        issued = issuer.issue_cert("x.example", common_name=name)
        port.client = issued.private_key_and_cert_chain_pem.bytes()

    for verb in VERBS:
        body = filter_body() if verb == "filter" else preempt_body()
        port.client = None
        with pytest.raises(aiohttp.ClientError):
            await port.ask(verb, body)
        known_as(stranger, "scheduler")
        with pytest.raises(aiohttp.ClientError):
            await port.ask(verb, body)
        known_as(authority, "other")
        status, text = await port.ask(verb, body)
        assert status == 403
        assert "Node" not in text
        assert port.answer_count(verb, FREE) == 0
        known_as(authority, "scheduler")
        assert (await port.ask(verb, body))[0] == 200
        assert port.answer_count(verb, FREE) == 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"clientCn": "scheduler"}, "scheduler: --client-cn needs --client-ca"),
        ({"clientCa": "/nonexistent/ca.crt"}, "scheduler: /nonexistent/ca.crt: cannot be read: "),
    ],
)
def test_client_certificates_that_cannot_be_checked_keep_it_from_starting(values, says):
    settings = msgspec.convert({"scheduler": {"enabled": True, **values}}, ControllerSettings)
    with pytest.raises(StartError, match=re.escape(says)):
        room.start(SimpleNamespace(settings=settings), None)


async def test_a_certificate_of_another_authority_is_served_at_once(port):
    port.issue("others")
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                status, _ = await port.ask("filter", filter_body())
            except aiohttp.ClientConnectorCertificateError:
                await asyncio.sleep(0.02)
                continue
            break
    assert status == 200


async def test_where_both_are_trusted_the_old_one_is_served_on_and_then_the_new_one(port):
    old = port.data["ca.crt"]
    port.issue("others", overlap=old)
    await asyncio.sleep(0)
    new = port.data["ca.crt"].removesuffix(old)
    for authority in (old, port.data["ca.crt"]):
        status, _ = await port.ask("filter", filter_body(), authority=authority)
        assert status == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await port.ask("filter", filter_body(), authority=new)


async def test_the_old_one_gives_way_by_itself_before_it_expires(port):
    old = port.data["ca.crt"]
    files = BundleFiles(ca_crt=old, tls_crt=port.data["tls.crt"], tls_key=port.data["tls.key"])
    served = parse_bundle(files)
    end = served.not_after - (served.not_after - served.not_before) / SPARE
    port.late = end - utc_now() - timedelta(seconds=0.3)
    port.issue("others", overlap=old)
    new = port.data["ca.crt"].removesuffix(old)
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorCertificateError):
                status, _ = await port.ask("filter", filter_body(), authority=new)
                break
            await asyncio.sleep(0.02)
    assert status == 200
    assert utc_now() + port.late >= end


async def test_it_listens_once_there_is_a_certificate(background, tmp_path):
    port = ServedExtender(background, tmp_path)
    port.start()
    await asyncio.sleep(0.02)
    assert port.extender.site is None
    port.issue()
    async with asyncio.timeout(PATIENCE):
        await port.extender.listening.wait()


async def test_what_is_malformed_is_shown_and_logged(port, capsys):
    status, text = await port.ask("filter", b"{")
    assert status == 200
    assert list(json.loads(text)) == ["Error"]
    assert "scheduler request invalid" in capsys.readouterr().out
    status, text = await port.ask("preempt", b"{")
    assert (status, json.loads(text)) == (200, {"NodeNameToMetaVictims": {}})
    assert (await port.ask("filter", filter_body()))[0] == 200


@pytest.mark.parametrize(
    ("body", "headers", "start"),
    [
        (b" " * (MAX_BODY_BYTES + 1), JSON, "harbourmaster: 413: "),
        (filter_body(), {"Content-Type": "text/plain"}, "harbourmaster: 415: "),
    ],
    ids=["too large", "no JSON"],
)
async def test_what_is_not_read_is_refused_with_a_line_that_the_scheduler_shows(
    port, body, headers, start
):
    status, text = await port.ask("filter", io.BytesIO(body), headers=headers)
    assert status == 200
    assert json.loads(text)["Error"].startswith(start)
    assert port.answer_count("filter", REFUSED) == 1


async def test_whoever_sends_nodes_whole_hears_how_not_to(port):
    _, text = await port.ask("filter", io.BytesIO(b" " * (MAX_BODY_BYTES + 1)))
    assert json.loads(text)["Error"].endswith(
        "set nodeCacheCapable: true, so that the request has only the names of nodes"
    )


async def test_the_log_tells_once_of_each_scheduler_that_is_not_ours(port, monkeypatch, capsys):
    monkeypatch.setattr(room, "MAX_REPORTED", 2)
    for index in (1, 1, 2, 3):
        pod = {**pod_of(), "spec": {"schedulerName": f"other-{index}"}}
        port.mirror.store.put("prod/shop-waiter-1.0", version(**CHECKED))
        _, text = await port.ask("filter", filter_body(Pod=pod))
        assert json.loads(text)["NodeNames"] == []
    lines = [
        line for line in capsys.readouterr().out.splitlines() if "from another scheduler" in line
    ]
    assert len(lines) == 2
    assert "other-1" in lines[0]
    assert port.answer_count("filter", "foreign") == 4


async def test_a_question_that_never_ends_is_given_up(port, monkeypatch):
    monkeypatch.setattr(room, "BODY_SECONDS", 0.05)
    unsent = asyncio.Event()

    async def slow():
        yield b'{"Pod":'
        await unsent.wait()

    async with asyncio.timeout(PATIENCE):
        status, text = await port.ask("filter", slow())
    unsent.set()
    assert (status, json.loads(text)["Error"][:20]) == (200, "harbourmaster: 408: ")


@pytest.mark.parametrize("verb", VERBS)
async def test_a_defect_of_ours_lets_nothing_pass(port, monkeypatch, verb):
    def raise_error(*_arguments, **_options):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(
        "harbourmaster.controller.extender.extender.scheduling_permission", raise_error
    )
    body = filter_body() if verb == "filter" else preempt_body()
    status, text = await port.ask(verb, body)
    assert status == 200
    assert "secret" not in text
    told = json.loads(text)
    assert told in (
        {"Error": "harbourmaster: internal error: see the log of the controller"},
        {"NodeNameToMetaVictims": {}},
    )
    assert port.answer_count(verb, "defect") == 1


async def test_other_paths_and_methods_are_refused(port):
    assert (await port.ask("bind", b"{}"))[0] == 404
    assert (await port.ask("filter", None, method="GET"))[0] == 405


async def test_five_thousand_nodes_are_answered(port):
    names = [f"node-{index}" for index in range(5000)]
    _, text = await port.ask("filter", filter_body(names))
    assert json.loads(text)["NodeNames"] == names
    port.mirror.store.put("prod/shop-waiter-1.0", version(**CHECKED))
    _, text = await port.ask("filter", filter_body(names))
    assert list(json.loads(text)["FailedAndUnresolvableNodes"]) == names


def answers(mirror, deadline=300.0, scheduler="keptn-scheduler"):
    return Answers(mirror, deadline=deadline, now=lambda: NOW, scheduler=scheduler)


def ask_filter(mirror, body=None, **options):
    answer = answers(mirror, **options).answer(FILTER, filter_body() if body is None else body)
    return answer, json.loads(answer.body)


def ask_preempt(mirror, body=None):
    answer = answers(mirror).answer(PREEMPT, preempt_body() if body is None else body)
    return answer, json.loads(answer.body)["NodeNameToMetaVictims"]


def test_a_pod_whose_checks_passed_may_go_everywhere():
    answer, told = ask_filter(Mirror(version(**PASSED)))
    assert (answer.outcome, answer.fault) == (FREE, "")
    assert told == {"NodeNames": list(NODES)}
    assert list(ask_preempt(Mirror(version(**PASSED)))[1]) == list(NODES)


def test_a_pod_whose_checks_run_goes_nowhere_and_evicts_nobody():
    mirror = Mirror(version(**CHECKED))
    answer, told = ask_filter(mirror)
    text = f"waits for pre-deployment checks of {VERSION_NAME} until 2026-03-01T12:04:00Z: smoke"
    assert answer.outcome == WAITS
    assert told == {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(NODES, text)}
    answer, victims = ask_preempt(mirror)
    assert (answer.outcome, victims) == (WAITS, {})


def test_the_deadline_is_that_of_the_settings():
    mirror = Mirror(version(**CHECKED))
    assert b"were not done by 2026-03-01T11:59:30Z" in ask_filter(mirror, deadline=30)[0].body
    assert b" until " not in ask_filter(mirror, deadline=0)[0].body


def test_nodes_on_which_it_failed_are_left_out():
    node = FailedNode(name="n2", reason="task smoke failed", expires="2026-03-01T12:30:00Z")
    mirror = Mirror(version(**PASSED, failed_nodes=(node,)))
    answer, told = ask_filter(mirror)
    assert (answer.outcome, told["NodeNames"]) == (AVOIDING, ["n1", "n3"])
    assert list(ask_preempt(mirror)[1]) == ["n1", "n3"]


def test_a_pod_of_a_scheduler_that_settings_do_not_name_waits_and_says_why():
    answer, told = ask_filter(Mirror(), scheduler="gatekeeper")
    (text,) = set(told["FailedAndUnresolvableNodes"].values())
    assert (answer.outcome, answer.fault, told["NodeNames"]) == (FOREIGN, text, [])
    assert text == (
        "waits in keptn-scheduler, but the controller handles pods of gatekeeper: "
        "scheduler.schedulerName must name the scheduler that asks it"
    )
    assert ask_filter(Mirror(), filter_body(annotations={}), scheduler="x")[0].outcome == FREE
    assert ask_filter(Mirror(version(**PASSED)), scheduler="x")[0].outcome == FREE


def unfilled_mirror():
    mirror = Mirror()
    mirror.synced.clear()
    return (
        mirror,
        f"harbourmaster: workload versions are not cached yet: {mirror.error or 'listing'}",
    )


def away():
    mirror = Mirror(version(**PASSED))
    mirror.error = "list keptnworkloadversions: refused"
    return mirror, f"harbourmaster: workload versions are out of date: {mirror.error}"


@pytest.mark.parametrize("state", [unfilled_mirror, away])
def test_what_is_not_known_is_an_error_that_is_shown_and_evicts_nobody(state):
    mirror, text = state()
    answer, told = ask_filter(mirror)
    assert (answer.outcome, told) == (UNKNOWN, {"Error": text})
    answer, victims = ask_preempt(mirror)
    assert (answer.outcome, victims) == (UNKNOWN, {})


@pytest.mark.parametrize("state", [unfilled_mirror, away])
def test_a_pod_of_no_workload_needs_nothing_to_be_known(state):
    mirror, _ = state()
    assert ask_filter(mirror, filter_body(annotations={}))[0].outcome == FREE


def test_a_pod_whose_version_is_not_there_waits():
    answer, told = ask_filter(Mirror())
    assert answer.outcome == WAITS
    assert set(told["FailedAndUnresolvableNodes"].values()) == {
        f"waits for KeptnWorkloadVersion {VERSION_NAME}, which is not there yet"
    }


def test_a_malformed_question_is_one_line_and_lets_nothing_pass():
    answer, told = ask_filter(Mirror(), b'{"Pod": 1}')
    assert answer.outcome == MALFORMED
    assert list(told) == ["Error"]
    assert told["Error"].startswith("harbourmaster: the body is not a valid ExtenderArgs: ")
    assert "\n" not in told["Error"]
    assert answer.fault in told["Error"]
    answer, victims = ask_preempt(Mirror(), b"[]")
    assert (answer.outcome, victims) == (MALFORMED, {})
    assert answer.fault.startswith("the body is not a valid ExtenderPreemptionArgs: ")
    answer, told = ask_filter(Mirror(version(**CHECKED)), filter_body(NodeNames=[1]))
    assert (answer.outcome, list(told)) == (MALFORMED, ["Error"])
