"""What can be wrong with dumps, as errors whose text is one line for a person."""

from __future__ import annotations


class BadInput(ValueError):
    """The dumps cannot be imported; the text says what, where and what to do."""


class BadDump(BadInput):
    """One file is no dump that can be read."""


class ForbiddenLoad(BadDump):
    """A pickle wants to load code. Whoever wrote it is not a flight recorder: nothing of it is used."""


class BadFolder(BadInput):
    """A folder from which no snapshot can be made."""
