"""Names of jobs and of their attempts."""

from __future__ import annotations

_PLACEHOLDERS = frozenset({"none", "null", "nil", "unknown", "default", "undefined", "n/a", "-"})
MAX_NAME = 200


def check_job_name(name: str, what: str = "job") -> str:
    """The name without surrounding blanks; `what` it names stands in errors.

    Raises ValueError for an empty one and for placeholders: two jobs called "none" would be taken for one.

    >>> check_job_name(" llama-7b ")
    'llama-7b'
    """
    stripped = name.strip()
    if not stripped:
        raise ValueError(f"the {what}'s name is empty: give it a name of its own")
    if stripped.lower() in _PLACEHOLDERS:
        raise ValueError(f"{stripped!r} is a placeholder, not a name: give the {what} a name of its own")
    if len(stripped) > MAX_NAME or not stripped.isprintable():
        raise ValueError(
            f"the {what}'s name has to have at most {MAX_NAME} printable characters: {stripped[:40]!r}"
        )
    return stripped
