"""Record layouts: packed, and every code in its enum."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import pytest

from schemas.enums import (
    Algo,
    DataType,
    Direction,
    FactKind,
    Func,
    Kind,
    NodeKind,
    PortState,
    Proto,
    Reason,
    Visibility,
)
from schemas.records import (
    BASELINE,
    BY_CODE,
    COLL,
    FACT,
    FLOW,
    LAG,
    MAX_US,
    PROC,
    RATE,
    RECORD_TYPES,
    UNKNOWN_US,
    WAIT,
    RecordType,
    as_dict,
    enum_values,
    unknown_codes,
)

ENUMS: dict[str, type[IntEnum]] = {
    "kind": Kind, "func": Func, "holder_func": Func, "visibility": Visibility, "datatype": DataType,
    "holder_datatype": DataType, "algo": Algo, "proto": Proto, "reason": Reason, "waiter_kind": NodeKind,
    "holder_kind": NodeKind, "direction": Direction, "api_func": Func,
    "what": FactKind, "state": PortState,
}  # fmt: skip
WIDTHS = {
    "UInt8": ("u1", 1), "UInt16": ("u2", 2), "UInt32": ("u4", 4), "UInt64": ("u8", 8), "Int16": ("i2", 2),
    "Int32": ("i4", 4), "Int64": ("i8", 8), "Float64": ("f8", 8), "DateTime64(9, 'UTC')": ("i8", 8),
    "FixedString(64)": ("S64", 64),
}  # fmt: skip
each = pytest.mark.parametrize("record", RECORD_TYPES, ids=lambda record: record.name)


@each
def test_layout_is_packed_and_little_endian(record: RecordType) -> None:
    at = 0
    assert record.dtype.names == tuple(field.name for field in record.fields)
    fields = record.dtype.fields
    assert fields is not None
    for field in record.fields:
        dtype, offset = fields[field.name][:2]
        assert offset == at
        assert dtype.byteorder in "<|" or np.dtype(dtype).newbyteorder("<") == dtype
        at += dtype.itemsize
    assert record.dtype.itemsize == at == len(record.empty(1).tobytes())


def test_sizes() -> None:
    """Fields are only ever appended: a size never shrinks, and what lies in Kafka keeps its offsets."""
    # 4 × u64, 3 × u32, 8 × u8, u32, 7 × u64, i32, u32, time, 7 × u32, u64, 4 × u32
    assert COLL.dtype.itemsize >= 32 + 12 + 8 + 4 + 56 + 8 + 8 + 28 + 8 + 16 == 180
    fields = COLL.dtype.fields
    assert fields is not None
    offsets = {"job": 0, "comm": 16, "rank": 32, "kind": 44, "flags": 52, "seq": 56, "launched": 120}
    assert {name: fields[name][1] for name in offsets} == offsets


@each
def test_columns_are_as_wide_as_the_fields(record: RecordType) -> None:
    for field in record.fields:
        if field.column.startswith("Enum8"):
            assert field.code == "u1"
        else:
            assert WIDTHS[field.column] == (field.code, np.dtype(field.code).itemsize)
        assert field.doc


@each
def test_enum_columns_match_their_enums(record: RecordType) -> None:
    columns = {field.name: field.column for field in record.fields if field.column.startswith("Enum8(")}
    assert columns
    for name, column in columns.items():
        read = {text: int(code) for text, code in re.findall(r"'(\w+)' = (\d+)", column)}
        assert read == {value.name.lower(): value.value for value in ENUMS[name]}
        assert column == "Enum8(" + ", ".join(f"'{text}' = {code}" for text, code in read.items()) + ")"
    assert enum_values(record) == {name: frozenset(map(int, ENUMS[name])) for name in columns}


@pytest.mark.parametrize("values", list(dict.fromkeys(ENUMS.values())))
def test_codes_fit_an_enum8(values: type[IntEnum]) -> None:
    assert all(0 <= value < 128 for value in values)
    assert len(values) == len({value.name.lower() for value in values})


def test_codes_of_sections() -> None:
    assert {code: record.name for code, record in BY_CODE.items()} == {
        1: "coll",
        2: "wait",
        3: "flow",
        4: "proc",
        5: "lag",
        6: "fact",
        7: "rate",
        8: "baseline",
    }
    assert tuple(BY_CODE.values()) == RECORD_TYPES == (COLL, WAIT, FLOW, PROC, LAG, FACT, RATE, BASELINE)
    # 0 is the JSON section.
    assert 0 not in BY_CODE
    assert all(code < 256 for code in BY_CODE)
    assert len({record.table for record in RECORD_TYPES}) == len(RECORD_TYPES)


def test_unknown_codes_of_waits() -> None:
    rows = WAIT.empty(4)
    rows["reason"], rows["waiter_kind"], rows["holder_kind"] = 1, 1, 2
    assert not unknown_codes(WAIT, rows).any()
    rows["reason"][1] = 0
    rows["holder_func"][2] = 99
    rows["waiter_kind"][3] = 255
    assert unknown_codes(WAIT, rows).tolist() == [False, True, True, True]


@each
def test_every_enum_field_is_looked_at(record: RecordType) -> None:
    for name, codes in enum_values(record).items():
        rows = record.empty(256)
        for other, allowed in enum_values(record).items():
            rows[other] = min(allowed)
        rows[name] = np.arange(256)
        known = np.flatnonzero(~unknown_codes(record, rows))
        assert known.tolist() == sorted(codes)


@each
def test_no_rows(record: RecordType) -> None:
    assert unknown_codes(record, record.empty(0)).shape == (0,)
    assert record.empty(0).dtype == record.dtype


def test_as_dict() -> None:
    row = COLL.empty(1)
    row["seq"], row["peer"], row["job"] = 5, -1, 2**64 - 1
    plain = as_dict(row[0])
    assert plain["seq"] == 5
    assert plain["peer"] == -1
    assert plain["job"] == 2**64 - 1
    assert set(plain) == set(COLL.dtype.names or ())


def test_unknown_durations_lie_above_all_others() -> None:
    assert MAX_US + 1 == UNKNOWN_US == np.iinfo(np.uint32).max
