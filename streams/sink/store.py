"""Inserts, and what ClickHouse's errors mean for the rows: wait, or give them up."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, Error

from queries.client import StoreError, connect, one_line
from streams.sink.rows import Rows

_SETTINGS = {
    "async_insert": 0,  # the answer means that the rows are there
    "input_format_parallel_parsing": 0,  # one block, cut the same way each time
    "deduplicate_blocks_in_dependent_materialized_views": 1,  # rollups are tables with tokens of their own
}

_ABOUT_THE_DATA = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        25,  # CANNOT_PARSE_ESCAPE_SEQUENCE
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        32,  # ATTEMPT_TO_READ_AFTER_EOF
        33,  # CANNOT_READ_ALL_DATA
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        53,  # TYPE_MISMATCH
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        128,  # TOO_LARGE_ARRAY_SIZE
        131,  # TOO_LARGE_STRING_SIZE
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        469,  # VIOLATED_CONSTRAINT
        691,  # UNKNOWN_ELEMENT_OF_ENUM
    }
)
"""Codes of errors that these rows would meet at any time. All others may pass, so the sink waits."""


class StoreAway(Exception):
    """The rows cannot be stored now; the text is one line."""


class RowsRefused(Exception):
    """The rows can never be stored; the text is one line."""


class Store:
    """ClickHouse as the sink sees it. It connects when it is first needed and again after each failure."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None

    def insert(self, rows: Rows, token: str) -> None:
        """Stores rows unless rows of this token are in the table already.

        Blocks until they are stored. Raises StoreAway and RowsRefused; after StoreAway they may be there or
        not, and the same call again makes it certain.
        """
        try:
            if self._client is None:
                self._client = connect(self._url)
            self._client.raw_insert(
                f"nccl.{rows.table}",
                column_names=rows.columns or None,
                insert_block=rows.data,
                fmt=rows.format,
                settings={**_SETTINGS, "insert_deduplication_token": token},
            )
        except StoreError as error:
            raise StoreAway(str(error)) from error
        except (ClickHouseError, OSError) as error:
            text = one_line(str(error), self._url)
            if isinstance(error, Error) and error.code in _ABOUT_THE_DATA:
                raise RowsRefused(text) from error
            self.close()
            raise StoreAway(text) from error

    def close(self) -> None:
        """Gives the connection back."""
        if self._client is not None:
            self._client.close()
            self._client = None
