"""Alertmanager's v2 API, as much of it as a sender needs."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from streams.notify.alerts import Alert

TIMEOUT_S: Final = 5.0

_REFUSED_FOR_GOOD = (400, 413, 422)
"""Alertmanager will never take this request; everything else may be better the next time."""


class BadAddress(ValueError):
    """The address cannot be Alertmanager's; the text is one line."""


class Away(Exception):
    """It does not answer, or not now; the text is one line."""


class Refused(Exception):
    """It refuses this request and always will; the text is one line."""


class Alertmanager:
    """A client. The address may carry user and password, and the path below which the API lies."""

    def __init__(self, url: str) -> None:
        """Raises BadAddress."""
        parts = urlsplit(url)
        self.shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        try:
            port = parts.port
        except ValueError as error:
            raise BadAddress(f"{self.shown!r} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise BadAddress(f"{self.shown!r} is not an http or https URL of an Alertmanager")
        self._address = f"{self.shown.rstrip('/')}/api/v2/alerts"
        self._headers = {"Content-Type": "application/json"}
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"

    def post(self, alerts: Sequence[Alert]) -> None:
        """Send alerts; may block for TIMEOUT_S. Raises Away and Refused."""
        body = json.dumps([alert.to_json() for alert in alerts]).encode()
        request = urllib.request.Request(self._address, body, self._headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            said = " ".join(error.read(500).decode(errors="replace").split())
            text = f"Alertmanager at {self.shown} answers {error.code} {error.reason}: {said}"
            raise (Refused if error.code in _REFUSED_FOR_GOOD else Away)(text) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Away(f"no Alertmanager answers at {self.shown} ({reason})") from error
