"""The image as its users get it: made twice from clones, looked through, and run by runc."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.manifests import ROOT, VERSION
from helpers.patience import PATIENCE
from helpers.releases import HOME, clean, make_clone, needs, run

# Two images, one of them of a base that is not yet there.
pytestmark = [pytest.mark.timeout(900), *needs("buildah", "runc", "apt-get", "faketime")]
ARCHIVE = f"dist/harbourmaster-{VERSION}-image.tar"
BILL = f"dist/harbourmaster-{VERSION}.cdx.json"
BASE = "localhost/harbourmaster-base:debian"
MB = 1_000_000
TMP = "/tmp"  # noqa: S108 -- of the container


def make_image(directory, umask=0o022, clock=(), **environment):
    """Clone what is committed, and make the archive there; return the clone."""
    make_clone(ROOT, directory, umask)
    options = {"cwd": directory, "umask": umask, "env": {**clean(), **environment}}
    make = (*clock, "make", "--no-print-directory", "CONTAINER_ENGINE=buildah")
    base = run(*make, "base-image", **options).strip()
    run(*make, "image", f"BIN={Path(sys.executable).parent}", f"PYTHON_IMAGE={base}", **options)
    return directory


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return make_image(tmp_path_factory.mktemp("clone") / "here", TZ="UTC")


@pytest.fixture(scope="module")
def blobs(clone, tmp_path_factory):
    """Return ``blobs(descriptor)``, which reads a blob of the archive; without one, its index."""
    folder = tmp_path_factory.mktemp("layout")
    shutil.unpack_archive(clone / ARCHIVE, folder)

    def read(descriptor=None):
        if descriptor is None:
            return (folder / "index.json").read_bytes()
        return (folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()

    return read


@pytest.fixture(scope="module")
def manifest(blobs):
    (only,) = json.loads(blobs())["manifests"]
    return json.loads(blobs(only))


@pytest.fixture(scope="module")
def root(clone):
    """The file system of the image, from the archive alone."""
    engine = clone / "deploy/image/engine.sh"
    environment = {**os.environ, "CONTAINER_ENGINE": "buildah"}
    container = run(engine, "from", f"oci-archive:{clone / ARCHIVE}", env=environment).strip()
    yield Path(run(engine, "mount", container, env=environment).strip())
    run(engine, "umount", container, env=environment)
    run(engine, "rm", container, env=environment)


@pytest.fixture
def check_content(root, manifest, blobs, tmp_path):
    """Yield ``check_content(*arguments, program, mounts)``, which runs it as a cluster would.

    ``mounts`` are pairs of a place in the container and a source, as is a writable /tmp.
    """
    name = f"image-{os.getpid()}-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"
    # A kubelet writes the first.
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    (tmp_path / "tmp").mkdir(mode=0o777)
    (tmp_path / "tmp").chmod(0o777)
    always = (("/etc/hosts", tmp_path / "hosts", "ro"), (TMP, tmp_path / "tmp", "rw"))

    def start(*arguments, program=None, mounts=()):
        run("runc", "spec", cwd=tmp_path)
        spec = json.loads((tmp_path / "config.json").read_text())
        config = json.loads(blobs(manifest["config"]))["config"]
        user, group = config["User"].split(":")
        spec["process"].update(
            terminal=False,
            user={"uid": int(user), "gid": int(group)},
            args=[*(program or config["Entrypoint"]), *arguments],
            env=config["Env"],
            capabilities={},
            noNewPrivileges=True,
        )
        spec["root"] = {"path": str(root), "readonly": True}
        for place, source, mode in (*always, *((*pair, "ro") for pair in mounts)):
            mount = {"destination": place, "type": "bind", "options": ["rbind", mode]}
            spec["mounts"].append({**mount, "source": str(source)})
        (tmp_path / "config.json").write_text(json.dumps(spec))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(["runc", "run", name], cwd=tmp_path, text=True, **pipes)

    yield start
    # It is there only if a test failed.
    subprocess.run(["runc", "delete", "--force", name], capture_output=True, check=False)


@pytest.fixture
def python(run_in_container):
    """Return ``python(code)``, which runs it in the container and returns what it prints."""

    def run_code(code):
        process = check_content("-c", code, program=["python"])
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        return out

    return run_code


def test_clones_of_other_paths_modes_time_zones_and_clocks_give_the_same_bytes(clone, tmp_path):
    elsewhere = make_image(
        tmp_path / "another/place",
        umask=0o077,
        clock=("faketime", "-f", "+400d"),
        TZ="Asia/Tokyo",
    )
    for path in (ARCHIVE, BILL, f"dist/harbourmaster-{VERSION}-py3-none-any.whl"):
        assert (elsewhere / path).read_bytes() == (clone / path).read_bytes(), path
    inspect = ("inspect", "--type=image", "--format={{.FromImageDigest}}", BASE)
    environment = {**clean(), "CONTAINER_ENGINE": "buildah"}
    bases = {
        run(checkout / "deploy/image/engine.sh", *inspect, env=environment)
        for checkout in (clone, elsewhere)
    }
    assert len(bases) == 1


def test_no_time_in_it_is_that_of_the_build(clone, manifest, blobs, tmp_path):
    # buildah asks the kernel for the time, where no library can lie to it.
    committed = int(run("git", "log", "-1", "--format=%ct", cwd=clone))
    created = json.loads(blobs(manifest["config"]))["created"]
    assert run("date", "--utc", f"--date={created}", "+%s").strip() == str(committed)
    layer = tmp_path / "layer.tar.gz"
    layer.write_bytes(blobs(manifest["layers"][-1]))
    listed = run("tar", "--list", "--verbose", "--full-time", "--utc", "--file", layer)
    times = {tuple(line.split()[3:5]) for line in listed.splitlines()}
    expected = run("date", "--utc", f"--date=@{committed}", "+%Y-%m-%d %H:%M:%S").split()
    assert times == {tuple(expected)}


def test_it_is_small(root, manifest):
    compressed = sum(layer["size"] for layer in manifest["layers"])
    installed = int(run("du", "--summarize", "--bytes", f"{root}{HOME}").split()[0])
    assert compressed <= 65 * MB
    assert installed <= 95 * MB


def test_it_has_no_installer_and_no_playground(root, python):
    paths = [path for path in root.rglob("*") if path.name == "ensurepip" or is_pip(path)]
    assert paths == []
    assert not list(root.rglob("harbourmaster/playground"))
    code = (
        "import importlib.util, sys\n"
        "print([importlib.util.find_spec(name) for name in "
        "('pip', 'ensurepip', 'harbourmaster.playground')], sys.prefix)"
    )
    assert python(code) == f"[None, None, None] {HOME}\n"


def is_pip(path):
    """Whether it is a program, a package or a wheel of pip."""
    return path.name == "pip" or path.name.startswith(("pip-", "pip3"))


def test_its_bill_of_materials_lists_what_is_installed(root, clone):
    bill = (root / f"{HOME[1:]}/share/sbom/harbourmaster.cdx.json").read_bytes()
    assert bill == (clone / BILL).read_bytes()
    listed = {
        component["name"].lower().replace("-", "_") for component in json.loads(bill)["components"]
    }
    packages = root.glob(f"{HOME[1:]}/lib/python3.*/site-packages/*.dist-info")
    installed = {path.name.partition("-")[0].lower() for path in packages}
    assert installed == listed | {"harbourmaster"}


def test_it_runs_as_a_user_without_rights_on_a_read_only_root(python):
    code = """
import os
status = dict(line.split(":\\t") for line in open("/proc/self/status") if ":\\t" in line)
print(os.getuid(), os.getgid(), *(int(status[f"Cap{name}"], 16) for name in CAPABILITIES))
try:
    open("/opt/harbourmaster/x", "w")
except OSError as error:
    print(error.strerror)
""".replace("CAPABILITIES", str(("Inh", "Prm", "Eff", "Bnd", "Amb")))
    first, second = python(code).splitlines()
    assert first == "65532 65532 0 0 0 0 0"
    assert second == "Read-only file system"


def test_every_module_of_ours_can_be_imported(python):
    code = (
        "import importlib, pkgutil, harbourmaster\n"
        "names = [each.name for each in pkgutil.walk_packages(harbourmaster.__path__, "
        "'harbourmaster.') if not each.name.endswith('__main__')]\n"
        "for name in names:\n"
        "    importlib.import_module(name)\n"
        "print(len(names))"
    )
    assert int(python(code)) > 300


@pytest.mark.parametrize("process", ["webhook", "controller"])
def test_both_processes_start_and_say_what_they_lack(run_in_container, process):
    started = check_content(process, "--kubeconfig=/missing", "--namespace=placement")
    out, err = started.communicate(timeout=PATIENCE)
    assert (started.returncode, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "/missing" in err


def test_it_answers_a_review_over_tls(run_in_container):
    review = ROOT / "tests/fixtures/statefulset-create.json"
    samples = ROOT / "deploy/samples"
    serving = check_content(
        "server",
        "files",
        "--policies=/samples",
        "--cert-dir=/tmp/certificates",
        "--try=/review.json",
        mounts=(("/samples", samples), ("/review.json", review)),
    )
    answer = ""
    # Ends with the answer, or when the process does.
    for line in serving.stdout:
        answer += line
        if '"allowed"' in line:
            break
    serving.terminate()
    _, err = serving.communicate(timeout=PATIENCE)
    assert '"allowed"' in answer, err


def test_it_sends_spans_over_grpc_and_http(python):
    assert python(SPANS) == "grpc: berth\nhttp: berth\n"


SPANS = """
import asyncio, http.server, threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

from harbourmaster.telemetry.tracing import create_collector_tracer


def told(how, request):
    print(f"{how}: {request.resource_spans[0].scope_spans[0].spans[0].name}", flush=True)


class ByGrpc(services.TraceServiceServicer):
    def Export(self, request, context):
        told("grpc", request)
        return messages.ExportTraceServiceResponse()


class ByHttp(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told("http", messages.ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


remote = grpc.server(ThreadPoolExecutor(1))
services.add_TraceServiceServicer_to_server(ByGrpc(), remote)
port = remote.add_insecure_port("127.0.0.1:0")
remote.start()
site = http.server.HTTPServer(("127.0.0.1", 0), ByHttp)
threading.Thread(target=site.serve_forever, daemon=True).start()


async def send(url):
    tracer = create_collector_tracer(url, {"service.name": "x"}, lambda *_: None)
    tracer.record(tracer.sample(), "berth", (1.0, 2.0), {})
    await tracer.close()


asyncio.run(send(f"127.0.0.1:{port}"))
asyncio.run(send(f"http://127.0.0.1:{site.server_port}"))
remote.stop(None)
"""
