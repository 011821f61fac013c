"""Names that come from jobs, hosts and dumps, as a terminal or a log may show them: nothing trusts them."""

from __future__ import annotations

import logging


def shown(text: str) -> str:
    """The text on one line, with what cannot be printed escaped: colours, line breaks, reversed writing.

    >>> print(shown("evil\\x1b[31m\\nname é"))
    evil\\x1b[31m\\nname é
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def shown_lines(text: str) -> str:
    """The same of text of ours that has lines, which stay."""
    return "\n".join(map(shown, text.split("\n")))


class LineFormatter(logging.Formatter):
    """A line of the log is one line, whatever the names in it; a traceback below it keeps its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """The line without its traceback."""
        return shown(super().formatMessage(record))


def log_lines(level: int | str, form: str) -> None:
    """Log to standard error in lines of this form."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
