"""The benchmarks' hosts send what a job's collectors would: within the budget, whole, and so many."""

from __future__ import annotations

import numpy as np

from benchmarks.hosts import A_HOST, BEGAN_NS, SECOND_NS, Hosts
from collectors.agent.budget import Limits
from collectors.agent.flush import Counts, messages
from schemas.enums import Kind
from schemas.envelope import decode
from schemas.records import COLL, PROC
from streams.slow.joins import whole

RANKS, PARTITIONS = 64, 8
EVERY = range(PARTITIONS)


def test_every_device_tells_its_positions_sums_and_process_once() -> None:
    flushes = Hosts(RANKS).healthy(3, PARTITIONS, EVERY)
    assert len(flushes) == RANKS // A_HOST
    for flush in flushes:
        kinds = np.bincount(flush.sections[COLL.name]["kind"], minlength=8)
        # Collectives of three communicators, and sends and receives of a fourth.
        assert kinds[Kind.POSITION] == kinds[Kind.SUM] == A_HOST * 5
        assert len(flush.sections[PROC.name]) == A_HOST


def test_messages_decode_and_keep_to_the_budget() -> None:
    limits = Limits(host_bytes=96 * 1024)
    hosts = Hosts(RANKS, limits=limits)
    for second in range(5):
        for number, flush in enumerate(hosts.healthy(second, PARTITIONS, EVERY)):
            ready = list(messages(flush, PARTITIONS, f"h{number}", 0, Counts()))
            assert 0.8 * limits.host_bytes < sum(len(each.value) for each in ready) <= limits.host_bytes
            decoded = [decode(each.value) for each in ready]
            assert sum(len(rows) for each in decoded for rows in each.sections.values()) == flush.records


def test_a_share_is_what_goes_to_its_partitions() -> None:
    hosts = Hosts(RANKS)
    whole_of, share = hosts.healthy(2, PARTITIONS, EVERY)[1], hosts.healthy(2, PARTITIONS, [5])[1]
    ready = [each for each in messages(whole_of, PARTITIONS, "h", 0, Counts()) if each.partition == 5]
    assert [each.value for each in messages(share, PARTITIONS, "h", 0, Counts())] == [
        each.value for each in ready
    ]


def test_hosts_choose_operations_that_join() -> None:
    flushes = Hosts(RANKS).healthy(0, PARTITIONS, EVERY)
    rows = COLL.joined(flush.sections[COLL.name] for flush in flushes)
    done = rows[rows["kind"] == Kind.DONE]
    joined, _ = whole(done, np.zeros(len(done), np.int64))
    assert len(joined) > len(done) // 2


def test_of_a_hang_all_but_the_culprit_tell_where_they_stand() -> None:
    hosts, culprit = Hosts(RANKS, limits=Limits(host_bytes=1)), 21
    flushes = hosts.stalled(5, 5, culprit, PARTITIONS, EVERY)
    rows = COLL.joined(flush.sections[COLL.name] for flush in flushes)
    standing = set(rows["dev"][rows["kind"] == Kind.STATE].tolist())
    assert standing == set(np.delete(hosts.devs, culprit).tolist())


def test_every_flow_of_a_second_is_there_once_and_launched_in_it() -> None:
    hosts = Hosts(RANKS)
    rows = hosts.every_flow(7)
    # 20 data parallel operations (two directions and channels), 16 sends and receives, a ring of hosts.
    assert len(rows) == RANKS * (20 * 2 * 2 + 16 + 16) + hosts.hosts * 2 * 2
    key = rows[["comm", "rank", "func", "seq", "peer", "direction", "channel"]]
    assert len(np.unique(key)) == len(rows)
    second = (rows["launched"].astype(np.int64) - BEGAN_NS) // SECOND_NS
    assert second.tolist() == [7] * len(rows)
