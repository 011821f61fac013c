"""What Alertmanager is told and when, in simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.incidents import Incident
from streams.notify.alertmanager import Alertmanager, BadAddress
from streams.notify.alerts import HOLDS_S, alerts_of, labels
from streams.notify.outbox import LAST_BACKOFF_S, REFRESH_S, Outbox, Post
from tests.alerts import an_incident

NOW = 1_772_400_000.0
"""After every incident of these tests."""
TEN_MINUTES_S = 600


def _open(number: int, revision: int = 1, **changes: object) -> Incident:
    return an_incident(number, revision=revision, **changes)


def _closed(number: int, revision: int = 2) -> Incident:
    return an_incident(number, revision=revision, state="closed", closed="2026-03-01T03:59:00.000000Z")


class _Receiver:
    """Alertmanager, up in some spans of time: takes posts and remembers them."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.up = True
        self.tries = 0
        self.taken: list[Post] = []

    def run(self, begin: float, end: float, step: float = 0.1) -> None:
        """Let time pass."""
        now = begin
        while now < end:
            post = self.outbox.due(now)
            if post is not None:
                self.tries += 1
                if self.up:
                    self.taken.append(post)
                    self.outbox.sent(post, now)
                else:
                    self.outbox.failed(now)
            now += step

    def told(self) -> list[tuple[str, bool]]:
        """Incident and whether it was firing, of each alert that was no refresh."""
        return [
            (dict(alert.labels)["incident"], alert.ends > alert.starts + HOLDS_S / 2)
            for post in self.taken
            if post.place is not None
            for alert in post.alerts
        ]


def test_ten_minutes_without_alertmanager_lose_nothing_and_keep_the_order() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    receiver.up = False
    for number in range(5):
        outbox.take(0, number, _open(number))
    outbox.take(0, 5, _closed(2))
    receiver.run(NOW, NOW + TEN_MINUTES_S)
    assert receiver.taken == []
    assert receiver.tries <= 6 + TEN_MINUTES_S / LAST_BACKOFF_S, "backs off"
    receiver.up = True
    receiver.run(NOW + TEN_MINUTES_S, NOW + TEN_MINUTES_S + LAST_BACKOFF_S + 2)
    assert [number for number, _ in receiver.told()] == [f"{number:016x}" for number in (0, 1, 2, 3, 4, 2)]
    assert [post.place for post in receiver.taken if post.place] == [(0, offset) for offset in range(6)]


def test_a_revision_that_comes_twice_is_sent_once() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    for offset, incident in enumerate((_open(1), _open(1), _open(1, 2), _open(1))):
        outbox.take(0, offset, incident)
    receiver.run(NOW, NOW + 5)
    assert len(receiver.told()) == 2
    assert [post.place for post in receiver.taken if post.place] == [(0, offset) for offset in range(4)]


def test_what_was_sent_before_a_restart_is_only_told_again_while_it_is_open() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    for incident in (_open(1), _open(2), _closed(2)):
        outbox.remember(0, incident)
    receiver.run(NOW, NOW + REFRESH_S / 2)
    assert receiver.told() == []
    (refresh,) = receiver.taken
    assert [dict(alert.labels)["incident"] for alert in refresh.alerts] == [f"{1:016x}"]
    receiver.run(NOW + REFRESH_S / 2, NOW + 3 * REFRESH_S + 1)
    assert len(receiver.taken) == 4, "again every minute: Alertmanager forgets"


def test_what_was_told_just_now_is_not_told_again_at_once() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    outbox.remember(0, _open(1))
    outbox.take(0, 0, _open(2))
    receiver.run(NOW, NOW + REFRESH_S / 2)
    first, refresh = receiver.taken
    assert first.place == (0, 0)
    assert [dict(alert.labels)["incident"] for alert in refresh.alerts] == [f"{1:016x}"]
    receiver.run(NOW + REFRESH_S / 2, NOW + 2 * REFRESH_S + 1)
    again = {dict(alert.labels)["incident"] for post in receiver.taken[2:] for alert in post.alerts}
    assert again == {f"{1:016x}", f"{2:016x}"}


def test_nothing_that_is_closed_is_refreshed() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    outbox.take(0, 0, _open(1))
    outbox.take(0, 1, _closed(1))
    receiver.run(NOW, NOW + 5 * REFRESH_S)
    assert all(post.place is not None for post in receiver.taken)


def test_a_partition_that_is_taken_away_is_forgotten() -> None:
    outbox = Outbox()
    receiver = _Receiver(outbox)
    outbox.take(0, 0, _open(1))
    outbox.take(1, 0, _open(2))
    outbox.forget(0)
    receiver.run(NOW, NOW + 3 * REFRESH_S)
    assert {dict(alert.labels)["incident"] for post in receiver.taken for alert in post.alerts} == {
        f"{2:016x}"
    }


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.lists(st.booleans(), max_size=60)
)
def test_whatever_fails_every_revision_arrives_once_and_in_order(
    revisions: list[tuple[int, bool]], fails: list[bool]
) -> None:
    outbox, now, taken = Outbox(), NOW, []
    for offset, (number, closes) in enumerate(revisions):
        outbox.take(0, offset, (_closed if closes else _open)(number, revision=offset + 1))
    pending = list(fails)
    while len(outbox):
        post = outbox.due(now)
        now += LAST_BACKOFF_S
        if post is None:
            continue
        if pending and pending.pop():
            outbox.failed(now)
        else:
            assert post.place is not None
            taken.append(post.place[1])
            outbox.sent(post, now)
    assert taken == list(range(len(revisions)))


def test_labels_say_what_routes() -> None:
    assert dict(labels(_open(1))) == {
        "alertname": "TrainingJobStalls", "category": "link", "incident": "0000000000000001",
        "job": "llama-7b", "severity": "warning",
    }  # fmt: skip
    assert dict(labels(_open(1, kind="slow")))["alertname"] == "TrainingJobSlow"


def test_an_incident_that_gets_louder_ends_under_its_old_labels() -> None:
    before, after = _open(1), _open(1, 2, severity="critical")
    old, new = alerts_of(after, before, NOW)
    assert dict(old.labels)["severity"] == "warning"
    assert old.ends == NOW
    assert dict(new.labels)["severity"] == "critical"
    assert new.ends == NOW + HOLDS_S
    assert len(alerts_of(replace(before, revision=2, summary="more is known"), before, NOW)) == 1


def test_a_closed_one_is_resolved_at_the_time_of_its_end() -> None:
    (alert,) = alerts_of(_closed(1), _open(1), NOW)
    assert alert.to_json()["startsAt"] == "2026-03-01T03:01:00.000Z"
    assert alert.to_json()["endsAt"] == "2026-03-01T03:59:00.000Z"
    assert dict(alert.annotations)["culprits"] == "rank 3 on node-3"


@pytest.mark.parametrize(
    "url", ["", "alertmanager:9093", "ftp://h", "http://", "http://h:port", "http://h:99999", "http://h:0"]
)
def test_what_is_no_address_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(BadAddress, match=r"^[^\n]*$"):
        Alertmanager(url)


def test_secrets_are_not_shown() -> None:
    assert Alertmanager("https://me:secret@h:9093/am").shown == "https://h:9093/am"
