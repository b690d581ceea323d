from __future__ import annotations

import stat

import pytest

from harbourmaster.playground.volumes import is_mounted, publish


@pytest.fixture
def volume(tmp_path):
    return tmp_path / "volume"


def read(volume):
    return {path.name: path.read_bytes() for path in volume.iterdir() if path.name[:2] != ".."}


def test_files_are_seen_through_one_link(volume):
    assert publish(volume, {"token": b"one", "namespace": b"x"})
    assert read(volume) == {"token": b"one", "namespace": b"x"}
    assert str((volume / "token").readlink()) == "..data/token"
    assert str((volume / "..data").readlink()).startswith("..20")


def test_a_change_swaps_the_link_and_leaves_no_old_folder(volume):
    publish(volume, {"token": b"one", "gone": b"x"})
    before = (volume / "..data").readlink()
    assert publish(volume, {"token": b"two", "new": b"y"})
    assert read(volume) == {"token": b"two", "new": b"y"}
    assert (volume / "..data").readlink() != before
    assert len(list(volume.glob("..2*"))) == 1


def test_an_open_folder_of_before_keeps_both_of_its_files_until_it_is_swapped(volume, monkeypatch):
    publish(volume, {"tls.crt": b"1", "tls.key": b"1"})
    seen = []
    replace = type(volume).replace

    def spy(path, target):
        seen.append(read(volume))
        return replace(path, target)

    monkeypatch.setattr(type(volume), "replace", spy)
    publish(volume, {"tls.crt": b"2", "tls.key": b"2"})
    assert seen == [{"tls.crt": b"1", "tls.key": b"1"}]


def test_the_same_content_changes_nothing(volume):
    publish(volume, {"token": b"one"})
    before = (volume / "..data").readlink()
    assert not publish(volume, {"token": b"one"})
    assert (volume / "..data").readlink() == before


def test_a_volume_is_mounted_once_it_is_filled(volume):
    assert not is_mounted(volume)
    volume.mkdir()
    assert not is_mounted(volume)
    publish(volume, {})
    assert is_mounted(volume)


def test_what_a_killed_kubelet_left_behind_does_not_matter(volume):
    publish(volume, {"token": b"one"})
    (volume / "..data_tmp").symlink_to("nowhere")
    (volume / "..2000_01_01_00_00_00.x").mkdir()
    assert publish(volume, {"token": b"two"})
    assert read(volume) == {"token": b"two"}
    assert len(list(volume.glob("..2*"))) == 1


def test_only_the_owner_reads(volume):
    publish(volume, {"token": b"one"})
    assert stat.S_IMODE(volume.stat().st_mode) == 0o700
    assert stat.S_IMODE((volume / "token").stat().st_mode) == 0o600
