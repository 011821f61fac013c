"""A dump is read as plain values; a pickle that wants more is refused and nothing of it runs."""

from __future__ import annotations

import copyreg
import os
import pickle
from pathlib import Path

import pytest

from collectors.flight_recorder.errors import BadDump, ForbiddenLoad
from collectors.flight_recorder.unpickle import load_plain

PLAIN = {"version": "2.9", "entries": [{"a": (1, 2.5, None, True)}], "more": [b"x", {1, 2}, frozenset({3})]}


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.command = f"touch {mark}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back(protocol: int) -> None:
    plain = {key: value for key, value in PLAIN.items() if key != "more" or protocol > 3}
    assert load_plain(pickle.dumps(plain, protocol), "_dump_0") == plain


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("nested", [False, True])
def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path: Path, protocol: int, nested: bool) -> None:
    mark = tmp_path / "executed"
    payload: object = Hostile(mark)
    if nested:
        payload = {"version": "2.9", "entries": [{"input_sizes": [(1, [payload])]}]}
    with pytest.raises(ForbiddenLoad, match=r"_dump_3: refused: it wants to load \w+\.system"):
        load_plain(pickle.dumps(payload, protocol), "_dump_3")
    assert not mark.exists()


def test_every_opcode_that_loads_a_name_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    touch = f"touch {mark}".encode()
    spelled = {
        "GLOBAL": b"cos\nsystem\n(V" + touch + b"\ntR.",
        "INST": b"(V" + touch + b"\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nV" + touch + b"\no.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch + b"\x85R.",
        "NEWOBJ": b"\x80\x02cbuiltins\nexec\n(V" + touch + b"\nt\x81.",
    }
    for opcode, raw in spelled.items():
        with pytest.raises(ForbiddenLoad, match="it wants to load"):
            load_plain(raw, opcode)
    assert not mark.exists()


def test_persistent_ids_are_refused() -> None:
    for raw in (b"Pstorage-7\n.", b"\x80\x02X\x09\x00\x00\x00storage-7Q."):
        with pytest.raises(ForbiddenLoad, match="outside object 'storage-7'"):
            load_plain(raw, "_dump_0")


@pytest.mark.parametrize("opcode", [b"\x82\xf0.", b"\x83\xf0\x00.", b"\x84\xf0\x00\x00\x00."])
def test_extension_codes_are_refused(opcode: bytes) -> None:
    copyreg.add_extension("os", "system", 0xF0)
    try:
        with pytest.raises(ForbiddenLoad, match=r"os\.system"):
            load_plain(b"\x80\x02" + opcode, "_dump_0")
    finally:
        copyreg.remove_extension("os", "system", 0xF0)


def test_an_unknown_extension_code_is_a_bad_dump() -> None:
    with pytest.raises(BadDump, match="_dump_0: not a readable pickle: "):
        load_plain(b"\x80\x02\x82\xf1.", "_dump_0")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "_dump_0: no bytes"),
        (pickle.dumps(PLAIN)[:40], "_dump_0: not a readable pickle: "),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "_dump_0: not a readable pickle: "),
        (b'{"version": ', "_dump_0: not a readable JSON: "),
        (b'{"a":' + b"[" * 200_000, "_dump_0: nested too deeply to be a dump"),
        (b"\xff\xfe\x00garbage", "_dump_0: not a readable pickle: "),
    ],
)
def test_what_is_no_dump_gives_one_clear_line(raw: bytes, said: str) -> None:
    with pytest.raises(BadDump) as caught:
        load_plain(raw, "_dump_0")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_deep_nesting_in_a_pickle_does_no_harm() -> None:
    depth = 100_000
    value = load_plain(b"]" * depth + b"a" * (depth - 1) + b".", "_dump_0")
    assert isinstance(value, list)


def test_json_is_read_too() -> None:
    assert load_plain(b' {"version": "2.4", "entries": []}', "rank0.json") == {
        "version": "2.4",
        "entries": [],
    }
