"""The Native format as clients want it that name a `client_protocol_version`.

chDB writes Native as of revision 0. clickhouse-go, and with it Grafana, names a later one and reads answers
with two additions: before each block its info, and after each column's type a byte that says whether the
column has a serialization of its own.

    revision 0:  columns, rows, { name, type,    data }…
    framed:      block info, columns, rows, { name, type, 0, data }…

To find the columns their data has to be walked, which takes about a microsecond for each string: right for
panels, too slow for bulk. clickhouse-connect asks for an older revision and falls back to 0 by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from mycroft.local.store_errors import NOT_IMPLEMENTED, refused

FIRST_FRAMED_REVISION = 54454
"""DBMS_MIN_REVISION_WITH_CUSTOM_SERIALIZATION of ClickHouse's protocol."""

# Field 1, is_overflows: no; field 2, bucket_num: -1; end.
_BLOCK_INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"
_NO_CUSTOM_SERIALIZATION = b"\x00"

_WIDTHS = {
    "Nothing": 1, "Bool": 1, "Int8": 1, "UInt8": 1, "Enum8": 1,
    "Int16": 2, "UInt16": 2, "Enum16": 2, "Date": 2, "BFloat16": 2,
    "Int32": 4, "UInt32": 4, "Float32": 4, "Date32": 4, "DateTime": 4, "IPv4": 4, "Decimal32": 4, "Time": 4,
    "Int64": 8, "UInt64": 8, "Float64": 8, "DateTime64": 8, "Decimal64": 8, "Time64": 8,
    "Int128": 16, "UInt128": 16, "UUID": 16, "IPv6": 16, "Decimal128": 16, "Point": 16,
    "Int256": 32, "UInt256": 32, "Decimal256": 32,
}  # fmt: skip
_INTERVAL_BYTES = 8
# Largest precision that fits into the width, by ClickHouse's Decimal(P, S).
_DECIMAL_WIDTHS = ((9, 4), (18, 8), (38, 16), (76, 32))
_GEO = {
    "Ring": "Array(Point)", "LineString": "Array(Point)", "MultiLineString": "Array(Array(Point))",
    "Polygon": "Array(Array(Point))", "MultiPolygon": "Array(Array(Array(Point)))",
}  # fmt: skip


def with_frames(body: bytes) -> bytes:
    """Blocks of revision 0 with block infos and serialization bytes.

    Raises QueryError for types that cannot be walked.
    """
    parts: list[bytes] = []
    walker = _Walker(body)
    while walker.at < len(body):
        parts.append(_BLOCK_INFO)
        start = walker.at
        columns, rows = walker.varint(), walker.varint()
        for _ in range(columns):
            walker.string()
            kind = walker.string().decode()
            parts += (body[start : walker.at], _NO_CUSTOM_SERIALIZATION)
            start = walker.at
            if rows:
                walker.prefix(kind)
                walker.data(kind, rows)
        parts.append(body[start : walker.at])
    return b"".join(parts)


class _Walker:
    """A position in Native data that moves over values without reading them."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.body[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> bytes:
        size = self.varint()
        self.at += size
        return self.body[self.at - size : self.at]

    def prefix(self, kind: str) -> None:
        """What stands before the data of a column: eight bytes for each LowCardinality in its type."""
        name, arguments = split_type(kind)
        if name == "LowCardinality":
            self.at += 8
        elif name in ("Array", "Nullable", "Map", "Tuple", "Nested", "SimpleAggregateFunction"):
            for argument in _children(name, arguments):
                self.prefix(argument)

    def data(self, kind: str, rows: int) -> None:
        """Over `rows` values of a type."""
        name, arguments = split_type(kind)
        width = _width(name, arguments)
        if width is not None:
            self.at += width * rows
        elif name == "String":
            self._strings(rows)
        elif name == "Nullable":
            self.at += rows
            self.data(arguments[0], rows)
        elif name in ("Tuple", "SimpleAggregateFunction"):
            for child in _children(name, arguments):
                self.data(child, rows)
            self.at += 0 if arguments else rows  # an empty tuple takes a byte
        elif name in ("Array", "Map", "Nested"):
            self._arrays(_children(name, arguments), rows)
        elif name == "LowCardinality":
            self._low_cardinality(arguments[0])
        elif name in _GEO:
            self.data(_GEO[name], rows)
        else:
            text = f"The embedded store cannot frame type {kind}: cast it, or ask for another format"
            raise refused(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", text)

    def _strings(self, rows: int) -> None:
        body, at = self.body, self.at
        for _ in range(rows):
            size = body[at]
            if size < 0x80:
                at += size + 1
            else:
                self.at = at
                size = self.varint()
                at = self.at + size
        self.at = at

    def _arrays(self, children: list[str], rows: int) -> None:
        self.at += 8 * rows
        elements = int.from_bytes(self.body[self.at - 8 : self.at], "little")
        if elements:
            for child in children:
                self.data(child, elements)

    def _low_cardinality(self, kind: str) -> None:
        index_kind = self._u64() & 0xFF
        name, arguments = split_type(kind)
        self.data(arguments[0] if name == "Nullable" else kind, self._u64())
        indexes = self._u64()
        self.at += indexes << index_kind

    def _u64(self) -> int:
        self.at += 8
        return int.from_bytes(self.body[self.at - 8 : self.at], "little")


def split_type(kind: str) -> tuple[str, list[str]]:
    """A type's name and its arguments.

    >>> split_type("Map(String, Enum8('a,(' = 1))")
    ('Map', ['String', "Enum8('a,(' = 1)"])
    """
    name, bracket, rest = kind.partition("(")
    return (name, list(_arguments(rest[:-1]))) if bracket else (kind, [])


def _arguments(text: str) -> Iterator[str]:
    depth, start, quoted, index = 0, 0, "", 0
    while index < len(text):
        char = text[index]
        if quoted:
            if char == "\\":
                index += 1
            elif char == quoted:
                quoted = ""
        elif char in "'`\"":
            quoted = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
        index += 1
    if text.strip():
        yield text[start:].strip()


def _width(name: str, arguments: list[str]) -> int | None:
    """Bytes of one value, None where they vary or the value is composite."""
    if name == "FixedString":
        return int(arguments[0])
    if name == "Decimal":
        precision = int(arguments[0])
        return next(width for limit, width in _DECIMAL_WIDTHS if precision <= limit)
    return _INTERVAL_BYTES if name.startswith("Interval") else _WIDTHS.get(name)


def _children(name: str, arguments: list[str]) -> list[str]:
    """The types inside a composite: a tuple's may have names, an aggregate has its function first."""
    if name == "SimpleAggregateFunction":
        return arguments[1:]
    if name in ("Tuple", "Nested"):
        return [_without_name(argument) for argument in arguments]
    return arguments


def _without_name(argument: str) -> str:
    """A tuple's element without its name.

    >>> _without_name("`a b` Array(UInt8)"), _without_name("UInt8"), _without_name("Enum8('x y' = 1)")
    ('Array(UInt8)', 'UInt8', "Enum8('x y' = 1)")
    """
    if argument.startswith("`"):
        return argument[argument.index("`", 1) + 1 :].strip()
    first, space, rest = argument.partition(" ")
    return rest.strip() if space and "(" not in first else argument
