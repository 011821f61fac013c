"""What commands write: one line where it cannot be, files whole or not at all, in any encoding."""

from __future__ import annotations

import os
import resource
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mycroft.cli import app
from mycroft.commands import record
from mycroft.errors import FAILED, UsageError
from mycroft.output import writing

MYCROFT = str(Path(sys.executable).with_name("mycroft"))
OLD = b"the old page"


@pytest.fixture
def full() -> Iterator[None]:
    """Files take 4 kB and no more."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def write(path: Path, data: bytes = b"new") -> None:
    with writing(path) as file:
        file.write(data)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("old", [None, OLD])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "x.html"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(UsageError, match=r"cannot write .*x\.html: File too large"):
        write(path, bytes(5000))
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == (
        [] if old is None else [("x.html", old)]
    )


def test_a_file_is_written(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    link.symlink_to(path)
    write(link, b"1")
    assert path.read_bytes() == b"1"
    path.chmod(0o640)
    write(link, b"2")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"2", 0o640)
    assert link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "why"), [("absent/x", "No such file"), (".", "Is a directory"), ("file/x", "Not a directory")]
)
def test_what_cannot_be_written_is_told(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=f"cannot write .*: {why}"):
        write(tmp_path / name)


def test_whoever_stops_half_way_leaves_nothing(tmp_path: Path) -> None:
    def stop() -> None:
        with writing(tmp_path / "x") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert list(tmp_path.iterdir()) == []


def test_devices_are_written_as_they_are(tmp_path: Path) -> None:
    write(Path("/dev/null"))
    with pytest.raises(UsageError, match="cannot write /dev/full: No space left on device"):
        write(Path("/dev/full"))
    program = (
        "from pathlib import Path; from mycroft.output import writing; print('before')\n"
        "with writing(Path('/dev/stdout')) as file: file.write(b'page\\n')\n"
        "print('after')"
    )
    out = tmp_path / "out"
    out.write_text("old\n")
    with out.open("a") as appended:
        subprocess.run([sys.executable, "-c", program], stdout=appended, check=True)
    assert out.read_text() == "old\nbefore\npage\nafter\n"


@pytest.mark.parametrize("arguments", [["--version"], ["plugin-path"], ["query"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_that_is_full_is_one_line(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [MYCROFT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    told = (done.returncode, done.stderr)
    assert told == (FAILED, "mycroft: cannot write to standard output: No space left on device\n")


@pytest.mark.usefixtures("full")
def test_a_recording_that_does_not_fit_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"t": number, "p": 0, "x": secrets.token_hex(64)} for number in range(200)]
    monkeypatch.setattr(record, "merge", lambda _: lines)
    path = tmp_path / "run"
    path.write_bytes(OLD)
    done = CliRunner().invoke(app, ["record", str(tmp_path), "-o", str(path)])
    assert isinstance(done.exception, UsageError)
    assert "run: File too large" in str(done.exception)
    assert (path.read_bytes(), len(list(tmp_path.iterdir()))) == (OLD, 1)


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}],
)
def test_an_encoding_that_lacks_letters_stops_nothing(environment: dict[str, str]) -> None:
    program = (
        "import sys; from mycroft.output import prepare; from mycroft.render import console\n"
        "prepare(); console().print('\\u2192 na\\xefve \\udc80')\n"
        "print('\\u2192'); print('\\u2192', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={**os.environ, **environment}
    )
    assert done.stdout == b"\\u2192 na\\xefve \\udc80\n\\u2192\n"
    assert done.stderr == b"\\u2192\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{MYCROFT} query | true"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_standard_output_may_be_closed() -> None:
    done = subprocess.run(["sh", "-c", f"{MYCROFT} query >&-"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
