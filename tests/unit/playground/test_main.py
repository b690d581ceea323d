from __future__ import annotations

from types import SimpleNamespace

import pytest

from harbourmaster.playground.__main__ import main
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.processes import Record, write_records


def test_down_on_a_stopped_folder_says_so_and_succeeds(tmp_path, capsys):
    assert main(["down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"no control plane is running in {tmp_path}\n"


def test_status_of_a_stopped_folder_fails(tmp_path, capsys):
    assert main(["status", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"no control plane is running in {tmp_path}\n"


def test_status_names_the_log_of_a_component_that_has_ended(tmp_path, capsys):
    write_records(tmp_path / "pids.json", [Record("etcd", 1, "other-boot:1")])
    assert main(["status", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"etcd ended: see {tmp_path / 'logs' / 'etcd.log'}\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["up"], "--dir"),
        (
            ["up", "--dir=x", "--without", "proxy"],
            "proxy is not one of controller-manager, scheduler, kwok",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(capsys, arguments, text):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err


def test_nodes_without_kwok_are_refused_before_anything_starts(tmp_path, capsys):
    code = main(["up", "--dir", str(tmp_path), "--nodes", "2", "--without", "kwok,scheduler"])
    assert code == 1
    assert capsys.readouterr().err == ("playground: --nodes needs kwok: take it out of --without\n")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["status", "--dir", str(tmp_path / "file" / "plane")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("playground: ")
    assert error.count("\n") == 1


def test_build_browser_fetches_the_browser_and_axe(monkeypatch):
    fetched = []
    monkeypatch.setattr(
        "harbourmaster.playground.__main__.ensure_browser", lambda **_: fetched.append("browser")
    )
    monkeypatch.setattr(
        "harbourmaster.playground.__main__.ensure_axe", lambda **_: fetched.append("axe")
    )
    assert main(["build-browser"]) == 0
    assert fetched == ["browser", "axe"]


def test_build_builds_all_and_needs_no_folder(monkeypatch):
    built = []
    monkeypatch.setattr(
        "harbourmaster.playground.__main__.ensure_binaries", lambda **_: built.append("plane")
    )
    monkeypatch.setattr(
        "harbourmaster.playground.__main__.ensure_prometheus",
        lambda program, **_: built.append(program),
    )
    monkeypatch.setattr(
        "harbourmaster.playground.__main__.ensure", lambda suite, **_: built.append(suite.name)
    )
    every = ["plane", "prometheus", "promtool", "node", "helm"]
    assert main(["build"]) == 0
    assert built == every
    suites = ("control-plane", "prometheus", "node", "helm")
    assert not any(main(["build", suite]) for suite in suites)
    assert built[5:] == every


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """The folders that a demo got, which does nothing; those that it makes are in one of ours."""
    given = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        "harbourmaster.playground.demo.run",
        lambda folder, *, keep, say: given.append((folder, keep)),
    )
    return given


def test_a_demo_that_went_well_leaves_no_folder(folders, tmp_path):
    assert main(["demo-evaluation", "--keep"]) == 0
    ((folder, keep),) = folders
    assert folder.parent == tmp_path
    assert keep
    assert not folder.exists()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_whole_demo_runs_on_where_somebody_sees_it(monkeypatch, tmp_path, is_terminal):
    given = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr(
        "harbourmaster.playground.tour.run",
        lambda folder, *, keep, say: given.append((folder, keep)),
    )
    assert main(["demo", f"--dir={tmp_path}"]) == 0
    assert main(["demo", f"--dir={tmp_path}", "--keep"]) == 0
    assert given == [(tmp_path, is_terminal), (tmp_path, True)]


def test_a_folder_given_to_the_demo_stays(folders, tmp_path):
    assert main(["demo-evaluation", f"--dir={tmp_path}"]) == 0
    assert folders == [(tmp_path, False)]
    assert tmp_path.exists()


def test_a_demo_that_went_otherwise_says_how_and_where_its_logs_are(monkeypatch, folders, capsys):
    def fail(folder, *, keep, say):
        folders.append(folder)
        raise PlaygroundError("the pod is Running")

    monkeypatch.setattr("harbourmaster.playground.demo.run", fail)
    assert main(["demo-evaluation"]) == 1
    (folder,) = folders
    assert folder.exists()
    assert capsys.readouterr().err == (
        f"the demo failed; logs are below {folder}\nplayground: the pod is Running\n"
    )


def test_an_error_without_a_text_says_what_failed(monkeypatch, capsys, tmp_path):
    def fail(_folder, *, keep, say):
        raise TimeoutError

    monkeypatch.setattr("harbourmaster.playground.demo.run", fail)
    assert main(["demo-evaluation", f"--dir={tmp_path}"]) == 1
    assert "playground: no answer in time: check that" in capsys.readouterr().err
