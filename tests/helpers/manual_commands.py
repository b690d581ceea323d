"""The commands of the manual: which blocks of a page are run, and how."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from harbourmaster.serving.options import add_settings

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/howto").glob("*.md")),
    *(
        page
        for folder in ("concepts", "internals", "migration", "operations", "reference")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
BLOCK = re.compile(
    r"(?:^ *<!-- (?P<how>not run|run until|exits with): (?P<what>.+?) -->\n+)?"
    r"^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SETTING = re.compile(r"^ +(--[a-z-]+) \S+.*?\[([A-Za-z.]+): ([^]]*)\]$", re.MULTILINE)
ALONE = 'eval "$(harbourmaster local up --dir /tmp/harbour)"'
GIVEN = {
    "docs/howto/deploying.md": ALONE,
    "docs/howto/preview.md": "kubectl create deployment previewed --image=none",
    "docs/howto/uninstalling.md": ALONE,
    "docs/migration/krake.md": """\
mkdir bootstrap
cat > bootstrap/metric.yaml <<'END'
api: core
kind: GlobalMetric
metadata: {name: heat_demand_zone_1}
spec: {min: 0, max: 5, provider: {name: prometheus, metric: heat_demand_zone_1}}
END
""",
    "docs/operations/api-server.md": "kubectl apply -f deploy/samples/cluster-toleration.yaml",
    "docs/operations/alerts.md": """\
kubectl create namespace storefront
kubectl -n storefront run till-7475d6c6b9-xnk8f --image=none
""",
    "docs/reference/evaluations.md": """\
kubectl create namespace shop
kubectl apply -f - <<'END'
apiVersion: lifecycle.keptn.sh/v1
kind: KeptnEvaluation
metadata: {name: pre-eval-enough-room-31337, namespace: shop}
spec: {evaluationDefinition: none, workloadVersion: "1"}
END
""",
    "docs/reference/keptnconfig.md": """\
kubectl create namespace shop || true
kubectl apply -f - <<'END'
apiVersion: options.keptn.sh/v1alpha1
kind: KeptnConfig
metadata: {name: keptn-config, namespace: shop}
spec: {blockDeployment: false}
END
""",
    "docs/reference/metrics.md": """\
kubectl create namespace platform
kubectl apply -f - <<'END'
apiVersion: metrics.keptn.sh/v1
kind: KeptnMetricsProvider
metadata: {name: prom, namespace: platform}
spec: {type: prometheus, targetServer: "http://prometheus.example.com"}
END
""",
    "docs/reference/placement.md": """\
kubectl create deployment shop --image=none --dry-run=client -o yaml > shop.yaml
kubectl config view --raw > dresden.yaml
""",
    "docs/reference/policies.md": """\
cp deploy/samples/cluster-toleration.yaml policy.yaml
cp deploy/samples/workloads/ledger-main.yaml workload.yaml
""",
    "docs/reference/rescheduler.md": """\
NODE=node-0
kubectl annotate node "$NODE" rescheduler.harbourmaster.dev/reservations=[]
kubectl taint node "$NODE" CriticalAddonsOnly=resched.x:NoSchedule
""",
    "docs/reference/rescheduler-plans.md": """\
for name in one two; do kubectl apply -f - <<END
apiVersion: v1
kind: Pod
metadata: {name: full-$name}
spec:
  tolerations: [{operator: Exists}]
  containers:
    - {name: main, image: none, resources: {requests: {cpu: 20}}}
END
done
kubectl wait --for=condition=Ready pod/full-one pod/full-two --timeout=90s
kubectl apply -f - <<END
apiVersion: v1
kind: Pod
metadata:
  name: coredns-5d4f8-x7k2p
  namespace: kube-system
  annotations: {scheduler.alpha.kubernetes.io/critical-pod: ""}
spec:
  tolerations: [{key: CriticalAddonsOnly, operator: Exists}]
  containers:
    - {name: main, image: none, resources: {requests: {cpu: 20}}}
END
kubectl -n kube-system wait --for=condition=PodScheduled=False pod/coredns-5d4f8-x7k2p --timeout=90s
""",
    "docs/reference/scheduler.md": "kubectl run ledger-7fc8566fcd-s24fd --image=none",
}
"""The objects and files that a page names and expects to exist."""
UNTIL = """\
set -m
(
{text}
) >"$OUTPUT" 2>&1 &
until grep --quiet --fixed-strings -- {what} "$OUTPUT"; do
  kill -0 $! 2>/dev/null || {{ cat "$OUTPUT" >&2; exit 1; }}
  sleep 0.1
done
kill -TERM -- -$!
wait $! || true
set +m
"""


class Block(NamedTuple):
    """Commands of a page: ``how`` is how they are run, if not as they stand, and ``what`` why."""

    line: int
    text: str
    how: str
    what: str


def blocks(page):
    """All blocks of commands, in order."""
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, match.start("text")) + 1,
            re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            match["how"] or "",
            match["what"] or "",
        )
        for match in BLOCK.finditer(text)
    ]


def script(page):
    """A page as one script, which stops at the first command that fails, and says where it is."""
    parts = ["set -euo pipefail", GIVEN.get(str(page.relative_to(ROOT)), "")]
    for block in blocks(page):
        if block.how == "not run":
            continue
        parts.append(f"echo {shlex.quote(f'== {page.relative_to(ROOT)}:{block.line}')} >&2")
        if block.how == "run until":
            parts.append(UNTIL.format(text=block.text, what=shlex.quote(block.what)))
        elif block.how == "exits with":
            parts.append(f"code=0; (\n{block.text}) || code=$?")
            parts.append(f"case $code in {block.what}) ;; *) exit 1 ;; esac")
        else:
            parts.append(block.text)
    return "\n".join(parts)


def settings_of(settings):
    """The key, flag and default of each setting, as ``--help`` shows them."""
    parser = argparse.ArgumentParser(
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=200, width=1000)
    )
    add_settings(parser, settings)
    return {(key, flag, default) for flag, key, default in SETTING.findall(parser.format_help())}
