"""What commands write: standard output, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mycroft.errors import UsageError


class OutputLost(Exception):
    """Standard output takes no more; no OSError, so that nobody takes it for one of a file or a network."""


class _Output(io.FileIO):
    """Standard output's descriptor; a pipe without a reader stays a BrokenPipeError."""

    def write(self, data: object, /) -> int | None:  # type: ignore[override]
        """As much as was taken; raises OutputLost."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(f"cannot write to standard output: {error.strerror}") from error


def prepare() -> None:
    """Let standard output escape what its encoding lacks, and fail with OutputLost; once, at the start."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - stays
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(sys.stdout.fileno(), "wb", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,
        )


def abandon() -> None:
    """Let what standard output did not take go nowhere, or the interpreter would try again as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the path's place when all is written; until then what was there stays.

    Devices, pipes and what standard output goes to are written as they are. Raises UsageError where it cannot
    be written.

    >>> with writing(Path("/dev/null")) as file:
    ...     file.write(b"page")
    4
    """
    try:
        with _as_it_is(path) or _whole(path.resolve()) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _as_it_is(path: Path) -> BinaryIO | None:
    """The path opened, where nothing may be put in its place; None where it is a file or will be one."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(number)):
                sys.stdout.flush()  # one place in the file for both
                return os.fdopen(os.dup(number), "wb")
    if stat.S_ISREG(status.st_mode):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return None
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb")


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A draft beside the path, which it becomes."""
    draft = path.with_name(f".mycroft-{secrets.token_hex(8)}")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        with draft.open("xb") as file:
            if mode is not None:  # else as any new file of the user's
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())  # some disks are full only now
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
