"""What is heard of a job that is over, to the end of the topics and with all who ever took part."""

from __future__ import annotations

from mycroft.local.slowness import Heard
from mycroft.settings import Settings
from schemas.envelope import encode
from schemas.members import encode_members
from schemas.topics import MEMBERS, TRACE
from streams.kafka import producer
from streams.topics import ensure_topics
from tests.integration.kafka_fixtures import EmbeddedBroker
from tests.live_jobs import LiveJob


def test_who_left_first_keeps_its_name(embedded_broker: EmbeddedBroker) -> None:
    """At the end ranks leave one by one, and each time their host announces those that are left."""
    kafka = embedded_broker.bootstrap
    ensure_topics(Settings(kafka=kafka))
    whole, left = (LiveJob({"dp": range(count)}, per_host=4) for count in (4, 3))
    client = producer(kafka, "tests")
    for job in (whole, left):
        (announced,) = job.announcements()
        client.produce(MEMBERS.name, encode_members(announced), key=announced.key, partition=0)
        client.produce(TRACE.name, encode(job.flush("h000")), partition=0)
    client.flush()
    with Heard(kafka) as heard:
        assert heard.windows("job") == []  # nothing ended in it, but all has been read
        ranks = {member.world_rank for each in heard.announcements("job") for member in each.members}
    assert ranks == {0, 1, 2, 3}
