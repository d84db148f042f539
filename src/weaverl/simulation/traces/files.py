"""The text of a trace file: plain, gzip, tar or zip, told by its first bytes; damage and look-alikes are named."""

import gzip
import io
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from weaverl.errors import TraceError

_FIRST_BYTES = 512
_LFS = b"version https://git-lfs.github.com/spec/"
_WIDE_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_OTHER_PACKING = ((b"\xfd7zXZ\x00", "xz"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"))
# NotImplementedError: a zip version or packing that Python does not know, or damage that looks like one.
_DAMAGE = (NotImplementedError, EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, zipfile.BadZipFile)


@contextmanager
def open_text(path: Path, member: str | None = None) -> Iterator[TextIO]:
    """The file's text as UTF-8 with or without a mark; CRLF, LF and lone CR all end lines.

    ``member`` names a file of an archive. Members that macOS adds (``._name``) are not looked at.

    Raises:
        TraceError: cannot be read, damaged, not UTF-8 text, a Git LFS pointer, or several files in one archive.
    """
    try:
        with path.open("rb") as packed, _unpacked(path, packed, member) as unpacked:
            data = io.BufferedReader(unpacked)
            _refuse_look_alikes(path, data.peek(_FIRST_BYTES)[:_FIRST_BYTES])
            with io.TextIOWrapper(data, encoding="utf-8-sig", newline=None) as text:
                yield text
    except _DAMAGE as error:
        raise TraceError(f"{path} is damaged ({error}): nothing was read; fetch it again") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not UTF-8 text ({error.reason}): convert it to UTF-8") from error
    except OSError as error:
        raise TraceError(f"trace {path} cannot be read: {error.strerror or error}; name an existing file") from error


@contextmanager
def _unpacked(path: Path, packed: io.BufferedReader, member: str | None) -> Iterator[io.BufferedIOBase]:
    first = _peek(packed)
    if first.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(packed) as archive, archive.open(_zip_member(path, archive, member)) as data:
            assert isinstance(data, zipfile.ZipExtFile)
            yield data
        return
    plain: io.BufferedIOBase = gzip.GzipFile(fileobj=packed) if first.startswith(b"\x1f\x8b") else packed
    if _is_tar(_peek(plain)):
        with tarfile.open(fileobj=plain, mode="r:") as archive_of_tar:
            yield _tar_member(path, archive_of_tar, member)
    elif member is not None:
        raise TraceError(f"{path} is no archive: there is no member {member} in it")
    else:
        yield plain


def _peek(stream: io.BufferedIOBase) -> bytes:
    first = stream.read(_FIRST_BYTES)
    stream.seek(0)
    return first


def _is_tar(first: bytes) -> bool:
    return first[257:262] == b"ustar"


def _tar_member(path: Path, archive: tarfile.TarFile, member: str | None) -> io.BufferedIOBase:
    files = {one.name: one for one in archive.getmembers() if one.isfile()}
    data = archive.extractfile(files[_chosen(path, files, member)])
    assert isinstance(data, io.BufferedIOBase), "a plain file of an archive has data"
    return data


def _zip_member(path: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    name = _chosen(path, [name for name in archive.namelist() if not name.endswith("/")], member)
    if archive.getinfo(name).flag_bits & 1:
        raise TraceError(f"{path} is encrypted: unpack it first")
    return name


def _chosen(path: Path, names: Iterable[str], member: str | None) -> str:
    """The member that was asked for, or the only one."""
    candidates = [name for name in names if not posixpath.basename(name).startswith("._")]
    if member is not None:
        if member not in candidates:
            raise TraceError(f"{path} has no member {member}: it has {', '.join(candidates) or 'none'}")
        return member
    if len(candidates) != 1:
        raise TraceError(
            f"{path} has {len(candidates)} files ({', '.join(candidates)}): name the one to read with --member"
            if candidates
            else f"{path} is an archive without files: give one that has the trace"
        )
    return candidates[0]


def _refuse_look_alikes(path: Path, first: bytes) -> None:
    if not first:
        raise TraceError(f"{path} is empty: give a file with a trace")
    if first.startswith(_LFS):
        raise TraceError(f"{path} is a Git LFS pointer, not the data: fetch the real file (`git lfs pull`)")
    for mark, name in _WIDE_MARKS:
        if first.startswith(mark):
            raise TraceError(f"{path} is {name} text: convert it to UTF-8")
    for mark, name in _OTHER_PACKING:
        if first.startswith(mark):
            raise TraceError(f"{path} is packed by {name}: unpack it first (gzip, tar and zip are read as they are)")
    if b"\x00" in first:
        raise TraceError(f"{path} is binary, not text: give a CSV or JSON trace")
