"""Process groups → communicators: who is in which.

NCCL dumps list a group's members under its name; dumps without lists (gloo) show only who recorded operations
under it. `pg_status` is keyed by `pg_id`, a number that each process gives its own groups, so it has to be
led back to names.

A group is its name *and* its members: under one name two sets of ranks may have made a group each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from collectors.flight_recorder.dumps import Dump, Folder
from schemas.ids import hash64


@dataclass(frozen=True)
class Communicator:
    """One communicator. The index in `members` is the rank within it.

    `nranks` exceeds the members where some exist that cannot be told.
    """

    id: int
    group: str
    desc: str
    members: tuple[int, ...]
    nranks: int

    @property
    def name(self) -> str:
        """Description and group name.

        >>> Communicator(1, "41", "TENSOR_MODEL_PARALLEL_GROUP", (12, 13), 2).name
        'TENSOR_MODEL_PARALLEL_GROUP[41]'
        """
        return f"{self.desc or 'group'}[{self.group}]"


@dataclass(frozen=True)
class Layout:
    """Who is in what, by world rank and group name."""

    communicators: tuple[Communicator, ...]
    index: Mapping[tuple[int, str], int]
    """(world rank, group name) → index in `communicators`, for ranks with a dump."""
    group_of: Mapping[int, Mapping[int, str]]
    """World rank → pg_id → group name, as far as known."""
    expected: tuple[int, ...]
    """World ranks that ought to have spoken, ascending."""
    silent: tuple[int, ...]
    """Of these, those without a dump that says anything."""


def comm_id(job: str, attempt: int, group: str, members: Iterable[int]) -> int:
    """Id of an imported communicator; the members' order does not matter."""
    return hash64("comm", job, attempt, group, ",".join(map(str, sorted(members))))


def dev_id(job: str, attempt: int, rank: int) -> int:
    """Id of the device of a world rank of an import."""
    return hash64("dev", job, attempt, rank)


def own_groups(dump: Dump) -> dict[int, str]:
    """pg_id → group name as this dump's own entries say."""
    pairs = np.unique((dump.entries["pg_id"] << 32) | dump.entries["group"])
    return {pair >> 32: dump.names[pair & 0xFFFF_FFFF][0] for pair in pairs.tolist()}


def groups_by_order(dump: Dump) -> dict[int, str]:
    """pg_id → group name by order: a process numbers its groups as it makes them, and so are they named.

    Holds where every listed group has a status and all names are numbers; empty where it cannot be used, or
    where an entry contradicts it.
    """
    names = _names_in_order(dump)
    if len(names) != len(dump.status):
        return {}
    paired = dict(zip(sorted(dump.status), names, strict=True))
    return paired if own_groups(dump).items() <= paired.items() else {}


def groups_by_number(dump: Dump) -> dict[int, str]:
    """pg_id → group name where all of a process's groups are listed, used or not: then pg_id counts the list.

    What a dump shows cannot tell this from a list with gaps; other dumps of the job may (see layout).
    """
    names = _names_in_order(dump)
    return {pg_id: names[pg_id] for pg_id in dump.status} if max(dump.status, default=0) < len(names) else {}


def _names_in_order(dump: Dump) -> list[str]:
    names = [name for name in dump.config if name.isascii() and name.isdigit()]
    return sorted(names, key=int) if len(names) == len(dump.config) else []


def layout(folder: Folder, job: str, attempt: int) -> Layout:
    """The communicators of all dumps of a folder."""
    dumps = folder.dumps
    group_of = _group_names(dumps)
    descs = {name: desc for dump in dumps.values() for name, desc in dump.names}
    descs |= {name: group.desc for dump in dumps.values() for name, group in dump.config.items()}

    listed: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    lists: dict[tuple[int, str], tuple[str, tuple[int, ...]]] = {}
    for rank, dump in dumps.items():
        for name, group in dump.config.items():
            if rank in group.ranks:
                key = (name, tuple(sorted(group.ranks)))
                listed.setdefault(key, group.ranks)
                lists[rank, name] = key
    observed: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name in sorted({*(name for name, _ in dump.names), *group_of[rank].values()}):
            if (rank, name) in lists:
                continue
            others = [key for key in listed if key[0] == name and rank in key[1]]
            if others:
                lists[rank, name] = others[0]
            else:
                observed[name].add(rank)

    expected = {*dumps, *folder.silent, *(rank for members in listed.values() for rank in members)}
    if observed:  # without lists nothing but the numbering shows who should be there
        expected |= set(range(max(expected) + 1))
    sizes = _complete(observed, descs, set(dumps), expected, _stuck_alone(dumps, observed))

    communicators = [
        Communicator(comm_id(job, attempt, name, members), name, descs[name], members, len(members))
        for (name, _), members in listed.items()
    ]
    place = {key: at for at, key in enumerate(listed)}
    index = {at: place[key] for at, key in lists.items()}
    for name, ranks in observed.items():
        members = tuple(sorted(ranks))
        index |= {(rank, name): len(communicators) for rank in members if rank in dumps}
        communicators.append(
            Communicator(comm_id(job, attempt, name, members), name, descs[name], members, sizes[name])
        )
    silent = tuple(sorted(expected - set(dumps)))
    return Layout(tuple(communicators), index, group_of, tuple(sorted(expected)), silent)


def _group_names(dumps: Mapping[int, Dump]) -> dict[int, dict[int, str]]:
    """World rank → pg_id → group name: by order, by own entries, by number, then by what is left.

    What other ranks call the same number is no help: each counts the groups that it is in.
    """
    names: dict[int, dict[int, str]] = {}
    shown = [
        (own_groups(dump).items(), groups_by_number(dump).items()) for dump in dumps.values() if dump.config
    ]
    numbered = any(own for own, _ in shown) and all(own <= counted for own, counted in shown)
    for rank, dump in dumps.items():
        known = groups_by_order(dump) or own_groups(dump) | (groups_by_number(dump) if numbered else {})
        pg_ids = sorted(set(dump.status) - set(known))
        unnamed = sorted(set(dump.config) - set(known.values()))
        if len(pg_ids) == len(unnamed) == 1:
            known |= {pg_ids[0]: unnamed[0]}
        names[rank] = known
    return names


def _stuck_alone(dumps: Mapping[int, Dump], observed: Mapping[str, set[int]]) -> set[str]:
    """Observed groups of one member that waits in them: nobody waits alone, so a member is missing."""
    stuck = set()
    for name, ranks in observed.items():
        if len(ranks) == 1:
            dump = dumps[next(iter(ranks))]
            groups = [at for at, (known, _) in enumerate(dump.names) if known == name]
            if (~dump.entries["finished"][np.isin(dump.entries["group"], groups)]).any():
                stuck.add(name)
    return stuck


def _complete(
    observed: dict[str, set[int]],
    descs: Mapping[str, str],
    present: set[int],
    expected: set[int],
    stuck: set[str],
) -> dict[str, int]:
    """Adds members that recorded nothing to observed groups, in place; returns the size of each group.

    Only on evidence. The default group, and one that all present ranks share, has everybody. Groups of one
    description that have no rank in common divide the ranks among themselves: where just one of them is
    smaller than the others, by as many as are in none of them, these belong there. Where several are, they
    are known to have more members, not which.
    """
    of_desc: dict[str, list[str]] = defaultdict(list)
    sizes = {}
    for name, ranks in observed.items():
        if descs[name] == "default_pg" or (ranks == present and len(present) > 1):
            observed[name] = ranks | expected
        else:
            of_desc[descs[name]].append(name)
        sizes[name] = len(observed[name])
    for names in of_desc.values():
        members = [rank for name in names for rank in observed[name]]
        nowhere = expected - set(members)
        largest = max(sizes[name] for name in names)
        smaller = [name for name in names if sizes[name] < largest]
        lacking = sum(largest - sizes[name] for name in smaller)
        if not nowhere or len(set(members)) != len(members):
            continue
        if len(smaller) == 1 and lacking == len(nowhere):
            observed[smaller[0]] |= nowhere
            sizes[smaller[0]] = largest
        elif nowhere - present:
            if smaller:
                sizes |= dict.fromkeys(smaller, largest)
            elif len(nowhere) % largest:  # else they may well be whole groups of their own
                sizes |= dict.fromkeys(names, largest + -(-len(nowhere) // len(names)))
    return {name: max(size, 2) if name in stuck else size for name, size in sizes.items()}
