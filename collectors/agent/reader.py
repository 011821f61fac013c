"""One file of the plugin, read by `pread`: a mapping would kill the collector if the file were cut."""

from __future__ import annotations

import os
from itertools import count

import numpy as np

from collectors.agent import layout
from collectors.agent.discovery import OpenFile
from collectors.agent.layout import HOT_HEADER, HOT_HEADER_BYTES, NotOurs, Place, Raw, Table
from collectors.agent.native import CURSOR, FAILURES, SOURCE

CUT = FAILURES[1]

_ids = count(1)


class Reader:
    """Reads one file. Tables that are not needed at each tick are read here."""

    def __init__(self, file: OpenFile) -> None:
        """Raises NotOurs where the file is not what it was when it was opened."""
        self.file = file
        raw = os.pread(file.fd, HOT_HEADER_BYTES, 0)
        if len(raw) < HOT_HEADER_BYTES:
            raise NotOurs(CUT)
        header = np.frombuffer(raw, HOT_HEADER)[0]
        layout.check_identity(header, file.size)
        self.places = layout.tables(header)
        self.written = int(header["ring_next"])
        """Records that the ring had taken when the file was opened, overwritten ones too."""
        self._buffers: dict[Table, bytearray] = {}
        self._dtypes = {table: _strided(table, place) for table, place in self.places.items()}
        self.cursor = np.zeros(1, CURSOR)
        """How far the ring has been read; native/collector writes it for as long as it reads this file."""
        self.source = np.zeros(1, SOURCE)
        """The same for native/collector."""
        self.source["cursor"] = self.cursor.ctypes.data
        who = file.identity
        for name, value in (("id", next(_ids)), ("nonce", who.nonce), ("fd", file.fd), ("pid", who.pid)):
            self.source[name] = value
        for table, place in self.places.items():
            self.source["places"][0, table] = (place.offset, place.stride, place.capacity)

    def table(self, header: np.void, table: Table) -> Raw:
        """All slots of a table that were ever used. The array lives until the next call for it."""
        return self.slots(table, 0, layout.used(header, table, self.places[table]))

    def slots(self, table: Table, first: int, count: int) -> Raw:
        """Slots `first` … `first + count − 1`, which lie within the table. Raises NotOurs where cut."""
        place = self.places[table]
        size = count * place.stride
        buffer = self._buffers.get(table)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[table] = bytearray(size)
        if size:
            into = memoryview(buffer)[:size]
            if os.preadv(self.file.fd, [into], place.offset + first * place.stride) < size:
                raise NotOurs(CUT)
        return np.frombuffer(buffer, self._dtypes[table], count)


def _strided(table: Table, place: Place) -> np.dtype[np.void]:
    """A table's row as wide as its stride: a newer plugin's rows may be longer than we know."""
    row = layout.ROWS[table]
    if place.stride == row.itemsize:
        return row
    assert row.names is not None
    assert row.fields is not None
    return np.dtype(
        {
            "names": list(row.names),
            "formats": [row.fields[name][0] for name in row.names],
            "offsets": [row.fields[name][1] for name in row.names],
            "itemsize": place.stride,
        }
    )
