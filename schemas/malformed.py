"""What every decoder raises for bytes that are not ours, whatever is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Malformed(ValueError):
    """Bytes that are not a message of ours; the text says what is wrong and where."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever Python raises over a wrong body into Malformed: "not `what`: …".

    RecursionError is what the JSON decoder raises for deep nesting, OverflowError what int() makes of 1e999.
    """
    try:
        yield
    except Malformed:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Malformed(f"not {what}: {type(error).__name__}: {error}") from error


def json_object(raw: bytes | str, what: str) -> dict[str, Any]:
    """The JSON object in `raw`; raises Malformed."""
    with reading(what):
        body = json.loads(raw)
    if not isinstance(body, dict):
        raise Malformed(f"not {what}: JSON, but not an object")
    return body


def text(body: dict[str, Any], name: str) -> str:
    """A field that has to be text; raises Malformed, or KeyError where it is absent."""
    value = body[name]
    if not isinstance(value, str):
        raise Malformed(f"field {name} is not text")
    return value


def optional_text(body: dict[str, Any], name: str) -> str | None:
    """A field that is text or null."""
    return None if body[name] is None else text(body, name)


def natural(body: dict[str, Any], name: str, limit: int = (1 << 63) - 1) -> int:
    """A field that has to be a whole number from 0 to `limit`; raises Malformed, or KeyError."""
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise Malformed(f"field {name} is not a whole number from 0 to {limit}")
    return value


def optional_natural(body: dict[str, Any], name: str, limit: int = (1 << 63) - 1) -> int | None:
    """A field that is such a number or null."""
    return None if body[name] is None else natural(body, name, limit)


def naturals(body: dict[str, Any], name: str, limit: int = (1 << 63) - 1) -> tuple[int, ...]:
    """A field that has to be a list of such numbers."""
    if not isinstance(body[name], list | tuple):
        raise Malformed(f"field {name} is not a list")
    return tuple(natural({name: value}, name, limit) for value in body[name])


def texts(body: dict[str, Any], name: str) -> tuple[str, ...]:
    """A field that has to be a list of texts."""
    if not isinstance(body[name], list | tuple):
        raise Malformed(f"field {name} is not a list")
    return tuple(text({name: value}, name) for value in body[name])
