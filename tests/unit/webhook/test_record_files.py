from __future__ import annotations

import errno
import os

import pytest

from harbourmaster.serving.settings import StartError
from harbourmaster.webhook import record_files
from harbourmaster.webhook.record_files import RecordFiles

LINE = b"x" * 99 + b"\n"


def files_of(directory):
    return sorted(directory.glob("reviews-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def files_in(directory, **caps):
    return RecordFiles(directory, **{"max_bytes": 1000, "max_files": 3, **caps})


def write_one(directory, **caps):
    files = files_in(directory, **caps)
    files.write([LINE])
    files.close()


@pytest.mark.claim("K2")
def test_only_their_owner_may_read_them(tmp_path):
    before = os.umask(0)
    try:
        files = files_in(tmp_path / "deep" / "records")
        files.write([LINE])
    finally:
        os.umask(before)
    files.close()
    (path,) = files_of(tmp_path / "deep" / "records")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.read_bytes() == LINE


@pytest.mark.claim("K2")
def test_no_file_is_larger_and_there_are_no_more_than_was_said(tmp_path):
    files = files_in(tmp_path)
    for _ in range(50):
        files.write([LINE] * 3)
    files.close()
    paths = files_of(tmp_path)
    assert len(paths) == 3
    assert all(0 < path.stat().st_size <= 1000 for path in paths)


def test_a_line_that_is_larger_than_a_file_gets_one_of_its_own(tmp_path):
    files = files_in(tmp_path)
    files.write([LINE, LINE * 20, LINE])
    files.close()
    assert sorted(path.stat().st_size for path in files_of(tmp_path)) == [100, 100, 2000]


def test_files_of_a_process_before_count_too_and_others_are_never_touched(tmp_path):
    for _ in range(6):
        write_one(tmp_path)
    assert len(files_of(tmp_path)) == 3
    strange = tmp_path / "reviews-of-books.jsonl"
    strange.write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    link = tmp_path / "reviews-20260101T000000-00000000.jsonl"
    link.symlink_to(elsewhere)
    for _ in range(6):
        write_one(tmp_path, max_files=1)
    assert strange.read_text() == "mine"
    assert link.is_symlink()
    assert elsewhere.read_text() == "theirs"
    assert len([path for path in files_of(tmp_path) if path not in {strange, link}]) == 1


@pytest.mark.claim("K2")
def test_s31_nothing_is_written_through_a_link_that_somebody_put_there(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    monkeypatch.setattr(record_files.secrets, "token_hex", lambda _: "00000000")
    monkeypatch.setattr(record_files.time, "strftime", lambda *_: "20260101T000000")
    (tmp_path / "reviews-20260101T000000-00000000.jsonl").symlink_to(victim)
    with pytest.raises(FileExistsError):
        files_in(tmp_path).write([LINE])
    assert victim.read_text() == "theirs"


def test_a_disk_that_is_full_leaves_no_half_a_line(tmp_path, monkeypatch):
    files = files_in(tmp_path)
    files.write([LINE])
    write = os.write
    pieces = iter([lambda file, data: write(file, data[:10])])

    def full(file, data):
        piece = next(pieces, None)
        if piece is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return piece(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        files.write([LINE])
    monkeypatch.setattr(os, "write", write)
    files.write([LINE])
    files.close()
    assert [path.read_bytes() for path in files_of(tmp_path)] == [LINE, LINE]


def test_a_place_that_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"^\S+/file: nothing can be recorded: File exists$"):
        files_in(tmp_path / "file")


def test_a_folder_that_is_not_writable_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StartError, match="nothing can be recorded: it is not writable"):
        files_in(tmp_path)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_stays_full_costs_no_recording_and_leaves_no_empty_file(tmp_path, monkeypatch):
    files = files_in(tmp_path)
    for moment in range(1, 4):
        files.write([LINE] * moment)
        files.close()
        # So that they do not share a tick of the clock.
        newest = next(path for path in files_of(tmp_path) if path.stat().st_mtime > 10)
        os.utime(newest, (moment, moment))
    good = files_of(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for _ in range(10):
            with pytest.raises(OSError, match="No space left"):
                files.write([LINE])
    # The oldest gave way to the one that was begun, and no other did.
    assert files_of(tmp_path) == good[1:]
    files.write([LINE])
    files.close()
    assert [path.stat().st_size for path in files_of(tmp_path)] == [200, 300, 100]


def test_a_file_that_fails_when_it_is_closed_is_let_go_of_once(tmp_path, monkeypatch):
    files = files_in(tmp_path)
    files.write([LINE])
    close, closed = os.close, []

    def failing(file):
        closed.append(file)
        close(file)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", failing)
        with pytest.raises(OSError, match="Input/output error"):
            files.close()
        # The number can be that of a connection by now.
        files.close()
    assert len(closed) == 1


def test_a_file_that_can_t_be_cut_is_not_written_to_again(tmp_path, monkeypatch):
    files = files_in(tmp_path)
    files.write([LINE])
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        patched.setattr(os, "ftruncate", full)
        with pytest.raises(OSError, match="No space left"):
            files.write([LINE])
    files.write([LINE])
    files.close()
    assert [path.read_bytes() for path in files_of(tmp_path)] == [LINE, LINE]


def test_a_file_that_another_process_just_removed_is_no_fault(tmp_path, monkeypatch):
    for _ in range(2):
        write_one(tmp_path)
    gone = tmp_path / "reviews-20260101T000000-00000000.jsonl"
    monkeypatch.setattr(type(tmp_path), "iterdir", lambda path: iter([gone, *path.glob("*")]))
    write_one(tmp_path)
    assert len(files_of(tmp_path)) == 3
