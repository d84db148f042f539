"""A file that is written is there whole, or what was there before; what is no file stays what it is."""

import errno
import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from weaverl.whole_file import try_whole_file, whole_file, write_whole


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_nothing_is_seen_of_a_file_until_it_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with whole_file(path) as stream:
        stream.write("new\r\n")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new\r\n"
    assert names(tmp_path) == ["a"]


def test_bytes_go_through_the_buffer(tmp_path):
    with whole_file(tmp_path / "a") as stream:
        stream.buffer.writelines([b"\xff", b"\n"])
    assert (tmp_path / "a").read_bytes() == b"\xff\n"


@pytest.mark.parametrize("old", ["old", None])
def test_a_failing_writer_leaves_what_was_there_and_nothing_else(tmp_path, old: str | None):
    path = tmp_path / "a"
    if old is not None:
        path.write_text(old)
    with pytest.raises(ZeroDivisionError), whole_file(path) as stream:
        stream.write("half")
        raise ZeroDivisionError
    assert names(tmp_path) == ([] if old is None else ["a"])
    assert old is None or path.read_text() == old


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError) as raised, whole_file(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert names(tmp_path) == ["far", "link"] and names(tmp_path / "far") == ["target"]


def test_a_link_to_nothing_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_a_link_to_itself_is_no_way_to_a_file_and_becomes_one(tmp_path):
    (tmp_path / "link").symlink_to("link")
    try_whole_file(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").read_text() == "new"


def test_the_mode_of_a_file_that_is_replaced_stays(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_pipe_stays_a_pipe_and_gets_the_text(tmp_path):
    path, heard = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = Thread(target=lambda: heard.append(path.read_text()), daemon=True)
    reader.start()
    try_whole_file(path)
    write_whole(path, "new")
    reader.join(timeout=30)
    assert heard == ["new"]
    assert path.is_fifo() and names(tmp_path) == ["pipe"]


def test_a_pipe_without_a_path_is_written_into():
    """As /dev/stdout is when the output is piped."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader:
        with os.fdopen(writing):
            write_whole(Path(f"/dev/fd/{writing}"), "new")
        assert reader.read() == "new"


def test_a_full_device_stays_a_device_and_raises_with_its_name(full_device):
    try_whole_file(full_device)
    with pytest.raises(OSError) as raised:
        write_whole(full_device, "new")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(full_device))
    assert full_device.is_char_device()


@pytest.mark.parametrize("name", ["missing/a", "file/a", "n" * 255])  # no room for the name of a draft
def test_a_place_for_no_file_is_known_before_anything_is_written(tmp_path, name: str):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError):
        try_whole_file(tmp_path / name)
    with pytest.raises(OSError):
        write_whole(tmp_path / name, "new")
    assert names(tmp_path) == ["file"]


def test_a_place_that_is_good_is_left_as_it_was(tmp_path):
    (tmp_path / "old").write_text("old")
    try_whole_file(tmp_path / "old")
    try_whole_file(tmp_path / "new")
    assert names(tmp_path) == ["old"] and (tmp_path / "old").read_text() == "old"
