"""The doctor's checks on made-up facts: what is wrong is a problem with a remedy, what is right is none."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from collectors.agent.layout import TIERS, State, Tier
from mycroft import variables
from mycroft.commands import doctor as command
from mycroft.doctor import clock, environment, gather, memory, nccl, plugin, services, traced, versions
from mycroft.doctor.check import Check, problem, ready
from mycroft.doctor.screen import as_json
from mycroft.plugin import plugin_path
from tests.collector_files import FakeProcess

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native" / "plugin"
MIB = 1 << 20


def statuses(checks: list[Check]) -> list[str]:
    return [check.status for check in checks]


def test_a_problem_has_a_remedy() -> None:
    with pytest.raises(ValueError, match="without a remedy"):
        problem("x", "broken", "")


# Versions


@pytest.mark.parametrize(
    ("version", "api"),
    [
        ((2, 22, 3), None), ((2, 23, 4), 1), ((2, 24, 3), 2), ((2, 25, 1), 2), ((2, 26, 2), 3),
        ((2, 27, 5), 4), ((2, 28, 9), 5), ((2, 29, 7), 6), ((2, 30, 7), 6), ((2, 31, 2), 7), ((2, 32, 3), 7),
    ],
)  # fmt: skip
def test_the_interface_that_an_nccl_asks_for(version: versions.Version, api: int | None) -> None:
    assert versions.highest_api(version) == api


def test_kernel_rules_are_the_plugins() -> None:
    text = " ".join((NATIVE / "versions.h").read_text().split())
    code = r"(\d+|UINT32_MAX|nccl_code\((?:\d+, ){2}\d+\))"
    found = re.findall(rf'\{{{code}, {code}, (true|false), "([^"]+)"\}}', text)

    def parsed(shown: str) -> versions.Version | None:
        numbers = [int(number) for number in re.findall(r"\d+", shown.replace("UINT32_MAX", ""))]
        return None if not numbers else (0, 0, 0) if numbers == [0] else (numbers[0], numbers[1], numbers[2])

    declared = [
        (parsed(since), parsed(until), allowed == "true", why) for since, until, allowed, why in found
    ]
    assert declared == [(r.since, r.until, r.allowed, r.reason) for r in versions.KERNEL_RULES]
    assert len(declared) == len(re.findall(r"(?:true|false), \"", text)) > 0


def test_exported_interfaces_are_those_of_the_linker_script() -> None:
    found = re.findall(r"ncclProfiler_v(\d+);", (NATIVE / "exports.map").read_text())
    assert tuple(map(int, found)) == versions.EXPORTED_APIS


# NCCL


def library(folder: Path, name: str, content: bytes = b"x") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def test_libraries_are_found_with_their_versions(tmp_path: Path) -> None:
    old = library(tmp_path / "a", "libnccl.so.2.27.5")
    (tmp_path / "a" / "libnccl.so.2").symlink_to("libnccl.so.2.27.5")
    banner = b"\0no CCL version here\0" + b"NCCL version 2.30.7+cuda12.9\0"
    bundled = library(tmp_path / "venv/lib/python3.12/site-packages/nvidia/nccl/lib", "libnccl.so.2", banner)
    rccl = library(tmp_path / "root/opt/rocm/lib", "librccl.so.1", b"\0RCCL version : 2.27.7-HEAD\0")
    blank = library(tmp_path / "root/usr/local/lib", "libnccl.so.2", b"")
    folders = nccl.search_folders(
        {"LD_LIBRARY_PATH": f"{tmp_path / 'a'}:"}, tmp_path / "venv", tmp_path / "root"
    )
    assert nccl.find_libraries(folders) == [
        nccl.Library(old, (2, 27, 5)),
        nccl.Library(bundled, (2, 30, 7)),
        nccl.Library(blank, None),
        nccl.Library(rccl, (2, 27, 7)),
    ]


@pytest.mark.parametrize(
    ("version", "status", "part"),
    [
        ((2, 30, 7), "ok", "asks for v6"), ((2, 32, 3), "ok", "asks for v7"), ((2, 24, 3), "problem", "v2"),
        ((2, 21, 5), "problem", "no profiler plugin"), (None, "warning", "cannot tell"),
    ],
)  # fmt: skip
def test_a_library(version: versions.Version | None, status: str, part: str) -> None:
    (check,) = nccl.check_libraries([nccl.Library(Path("/x/libnccl.so.2"), version)])
    assert check.status == status
    assert part in check.says


def test_a_plugin_that_lacks_the_newest_interface_serves_with_an_older_one() -> None:
    (check,) = nccl.check_libraries([nccl.Library(Path("/x/libnccl.so.2"), (2, 31, 2))], [4, 5, 6])
    assert (check.status, "will take v6" in check.says) == ("ok", True)
    (check,) = nccl.check_libraries([nccl.Library(Path("/x/libnccl.so.2"), (2, 26, 2))], [4, 5, 6])
    assert check.status == "problem"


@pytest.mark.parametrize(
    ("version", "variables", "status"),
    [
        ((2, 31, 2), {}, "ok"), ((2, 31, 2), {"MYCROFT_TIER": "kernel"}, "warning"),
        ((2, 30, 7), {"MYCROFT_TIER": "kernel"}, "ok"), ((2, 30, 3), {"MYCROFT_KERNEL_ANY": "1"}, "warning"),
        ((2, 30, 3), {"MYCROFT_KERNEL_ANY": "0"}, "ok"), (None, {"MYCROFT_TIER": "kernel"}, "warning"),
    ],
)  # fmt: skip
def test_kernel_tier(version: versions.Version | None, variables: dict[str, str], status: str) -> None:
    assert statuses(nccl.check_kernel([version], variables)) == [status]


# Environment


def test_variables_are_those_that_the_plugin_reads() -> None:
    read = set(re.findall(r'"(MYCROFT_[A-Z_]+)"', (NATIVE / "settings.cpp").read_text()))
    assert {one.name for one in variables.PLUGIN} == read
    header = (NATIVE / "settings.h").read_text()
    assert f'dir = "{variables.USUAL_DIR}"' in header
    assert "shm_bytes = 4 << 20" in header


def test_every_variable_that_python_reads_is_known() -> None:
    known = {one.name for one in (*variables.PLUGIN, *variables.PASSED, *variables.ELSEWHERE)}
    known |= {one.name for one in variables.settings()}
    read = set()
    for folder in ("mycroft", "collectors", "streams", "queries", "schemas"):
        for path in (ROOT / folder).rglob("*.py"):
            text = "" if path.name == "variables.py" else path.read_text()  # which declares them
            read |= set(re.findall(r'(?:environ(?:ment)?(?:\.get\(|\[)|, )"(MYCROFT_[A-Z_]+)"', text))
    assert len(read) > 4
    assert read <= known


def test_tiers_are_the_plugins() -> None:
    (names,) = re.findall(r"kNames\[\] = \{([^}]+)\}", (NATIVE / "settings.cpp").read_text())
    assert tuple(re.findall(r'"(\w+)"', names)) == TIERS


def test_the_rule_of_free_space_is_the_plugins() -> None:
    assert f"kFreeTimes = {memory.FREE_TIMES};" in (NATIVE / "shm.cpp").read_text()


@pytest.mark.parametrize(
    "of", [variables.PLUGIN, variables.PASSED, variables.ELSEWHERE, variables.settings()]
)
def test_the_operators_page_has_the_tables(of: tuple[variables.Variable, ...]) -> None:
    assert variables.table(of) in (ROOT / "docs" / "operators.md").read_text()


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"MYCROFT_JOBS": "x"}, "is MYCROFT_JOB meant?"), ({"MYCROFT_TIER": "flow"}, "is no tier"),
        ({"MYCROFT_SHM_BYTES": "2T"}, "out of range"), ({"MYCROFT_SHM_BYTES": "1K"}, "takes 262144"),
        ({"MYCROFT_DISABLE": "1"}, "not traced"), ({"MYCROFT_RECORD": "/d"}, "written to disk"),
    ],
)  # fmt: skip
def test_variables_that_do_not_do_what_they_seem_to(variables: dict[str, str], part: str) -> None:
    (check,) = environment.check_environment(variables)
    assert check.status == "warning"
    assert part in check.says


def test_variables_in_order() -> None:
    given = {"MYCROFT_JOB": "a", "MYCROFT_SHM_BYTES": "16M", "MYCROFT_DISABLE": "0", "MYCROFT_KAFKA": "h:1"}
    assert statuses(environment.check_environment(given)) == ["ok"]


def test_the_operators_page_has_every_kernel_rule() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    for rule in versions.KERNEL_RULES:
        assert f"| {'allowed' if rule.allowed else 'refused'} | {rule.reason} |" in page


def test_the_operators_page_has_every_line_with_which_the_plugin_gives_up() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    reasons = re.findall(r'return failure\("([^"]+)"', (NATIVE / "shm.cpp").read_text())
    assert len(reasons) > 4
    assert [reason for reason in reasons if reason not in page] == []
    said = [
        line.split("%")[0]
        for file in ("process.cpp", "chain.cpp", "recorder.cpp")
        for line in re.findall(r'"(Mycroft: [^"]+)"', (NATIVE / file).read_text())
    ]
    assert len(said) > 4
    assert [line for line in said if line.strip() not in page] == []


# Plugin and slot


ALL = dict.fromkeys(range(3, 8), "Mycroft")
GOOD = plugin.Trial(ALL, layout_version=1, plugin_version="0.1.0")


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (GOOD, ["ok", "ok"]),
        (plugin.Trial(error="wrong ELF class"), ["problem"]),
        (plugin.Trial(died="it crashed: SIGSEGV"), ["problem"]),
        (plugin.Trial(), ["problem"]),
        (plugin.Trial({4: "other"}), ["warning"]),
        (plugin.Trial({6: "Mycroft"}, layout_version=1), ["problem", "ok"]),
        (plugin.Trial(ALL, layout_version=2), ["ok", "problem"]),
        (
            plugin.Trial(ALL, lines=("Mycroft: off, the job goes on untraced: too little room",)),
            ["ok", "problem"],
        ),
    ],
)
def test_plugin(tmp_path: Path, trial: plugin.Trial, expected: list[str]) -> None:
    path = library(tmp_path, "p.so")
    checks = plugin.check_plugin(path, trial)
    assert statuses(checks) == expected
    if trial.lines:
        assert "too little room" in checks[1].says


def test_no_plugin(tmp_path: Path) -> None:
    assert statuses(plugin.check_plugin(None, None)) == ["problem"]
    assert statuses(plugin.check_plugin(tmp_path / "none.so", None)) == ["problem"]


def test_what_is_in_nccls_slot(tmp_path: Path) -> None:
    ours = library(tmp_path, "libnccl-profiler-mycroft.so")
    other = library(tmp_path, "libnccl-profiler-inspector.so")
    folders = [tmp_path]
    cases = {
        None: ("warning", None), "mycroft": ("ok", ours), str(ours): ("ok", ours),
        "inspector": ("problem", other), "nothing": ("problem", None),
    }  # fmt: skip
    for value, (status, file) in cases.items():
        found = plugin.find_in_slot(value, folders)
        assert found == file
        check = plugin.check_slot(plugin.Slot(value, "the environment", found), ours)
        assert check.status == status
        if file == other:
            assert f"NCCL_PROFILER_PLUGIN={ours} MYCROFT_CHAIN={other}" in check.remedy


def test_a_plugin_that_nccl_finds_unasked(tmp_path: Path) -> None:
    ours = library(tmp_path, "libnccl-profiler-mycroft.so")
    unasked = library(tmp_path, "libnccl-profiler.so")
    check = plugin.check_slot(plugin.Slot(None, "", plugin.find_in_slot(None, [tmp_path])), ours)
    assert check.status == "warning"
    assert f"MYCROFT_CHAIN={unasked}" in check.remedy
    same = plugin.Slot(None, "", unasked, GOOD)
    assert plugin.check_slot(same, ours).status == "ok"


def test_nccls_own_files_of_settings(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nccl.conf").write_text("NCCL_DEBUG=WARN\nNCCL_PROFILER_PLUGIN=a\n")
    home = {"HOME": str(tmp_path)}
    name = "NCCL_PROFILER_PLUGIN"
    files = plugin.nccl_files(home, tmp_path)
    assert plugin.nccl_setting(name, {}, files) == ("a", str(tmp_path / "etc" / "nccl.conf"))
    (tmp_path / ".nccl.conf").write_text(f"{name}=b")
    assert plugin.nccl_setting(name, {}, files)[0] == "b"
    assert plugin.nccl_setting(name, {name: "c"}, files) == ("c", "the environment")
    assert plugin.nccl_setting(name, {}, ()) == (None, "")


def test_chain(tmp_path: Path) -> None:
    ours, other = library(tmp_path, "ours.so"), library(tmp_path, "other.so")
    assert plugin.check_chain(None, None, ours, None) == []
    for file, trial, status in (
        (None, None, "problem"),
        (ours, None, "problem"),
        (other, GOOD, "problem"),
        (other, plugin.Trial(died="it crashed: SIGSEGV"), "problem"),
        (other, plugin.Trial({6: "inspector"}), "ok"),
    ):
        assert statuses(plugin.check_chain("x", file, ours, trial)) == [status]


_SOURCE = """
struct { const char* name; void* f[5]; } ncclProfiler_v4 = {"other"}, ncclProfiler_v9 = {"other"};
#ifdef CRASH
__attribute__((constructor)) static void crash(void) { *(volatile int*)0 = 1; }
#endif
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="cc is missing")
def test_a_plugin_is_loaded_in_a_process_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text(_SOURCE)
    for name, *flags in (("good.so",), ("bad.so", "-DCRASH")):
        command = ["cc", "-shared", "-fPIC", *flags, "-o", str(tmp_path / name), str(source)]
        subprocess.run(command, check=True)
    assert plugin.try_plugin(tmp_path / "good.so", tmp_path) == plugin.Trial({4: "other", 9: "other"})
    assert plugin.try_plugin(tmp_path / "bad.so").died == "it crashed: SIGSEGV"
    assert "invalid ELF" in plugin.try_plugin(library(tmp_path, "text.so", b"text " * 100)).error
    assert not list(tmp_path.glob(".doctor-*"))


def test_our_own_plugin_traces_in_a_trial(tmp_path: Path) -> None:
    try:
        path = plugin_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    trial = plugin.try_plugin(path, tmp_path / "absent")
    assert statuses(plugin.check_plugin(path, trial)) == ["ok", "ok"]
    assert sorted(trial.tables) == [3, 4, 5, 6, 7]
    assert list(tmp_path.iterdir()) == []


# Shared memory


def folder(free: int, total: int = 1 << 40, **other: bool | str) -> memory.Folder:
    facts = {"exists": True, "link": False, "writable": True, "filesystem": "tmpfs"} | other
    return memory.Folder(Path("/dev/shm/mycroft"), total=total, free=free, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Eight of 4 MiB: the eighth starts beside 28 MiB taken and wants 16 free, 44 in all.
        (folder(44 * MIB), ["ok"]),
        (folder(44 * MIB - 1), ["problem"]),
        (folder(15 * MIB), ["problem"]),
        (folder(60 * MIB, 64 * MIB), ["warning"]),
        (folder(1 << 30, link=True), ["problem"]),
        (folder(1 << 30, writable=False), ["problem"]),
        (folder(1 << 30, filesystem="ext4"), ["ok", "warning"]),
    ],
)
def test_room(given: memory.Folder, expected: list[str]) -> None:
    assert statuses(memory.check_folder(given, 4 * MIB, 8)) == expected


def test_room_for_some() -> None:
    # 36 MiB free: 16 wanted, so a process starts while 36 - 4k >= 16: k = 0 … 5, six of them.
    (check,) = memory.check_folder(folder(36 * MIB), 4 * MIB, 8)
    assert "6 of 8 processes would be traced" in check.says
    (check,) = memory.check_folder(folder(10 * MIB, 64 * MIB), 4 * MIB, 8)
    assert "no process would be traced" in check.says
    assert "--shm-size" in check.remedy


def test_looking_at_a_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / {tmp_path} rw - tmpfs shm rw\nnonsense\n"
    )
    found = memory.look(tmp_path / "a" / "b", mounts)
    assert (found.exists, found.writable, found.filesystem) == (False, True, "tmpfs")
    assert found.total >= found.free > 0
    (tmp_path / "link").symlink_to(tmp_path)
    assert memory.look(tmp_path / "link", mounts).link
    (tmp_path / "file").write_text("")
    assert memory.look(tmp_path / "file", mounts).error
    assert memory.filesystem_of(Path("/etc"), mounts) == "ext4"


def test_container_hints(tmp_path: Path) -> None:
    assert memory.container(tmp_path) == ""
    (tmp_path / "proc" / "1").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "cgroup").write_text("0::/kubepods/pod1\n")
    assert memory.container(tmp_path) == "kubepods"
    (tmp_path / ".dockerenv").write_text("")
    assert memory.container(tmp_path) == "/.dockerenv"


def test_a_collector_is_seen_by_its_lock(tmp_path: Path) -> None:
    assert memory.is_locked(tmp_path / "absent") is None
    assert memory.is_locked(tmp_path) is False
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert memory.is_locked(tmp_path) is True
    os.close(fd)


def test_collectors_and_their_mounts(tmp_path: Path) -> None:
    shared = tmp_path / "files"
    shared.mkdir()
    for pid, root in ((5, Path("/")), (6, tmp_path / "other"), (7, tmp_path / "nowhere")):
        process = tmp_path / "proc" / str(pid)
        process.mkdir(parents=True)
        (process / "cmdline").write_bytes(b"python\0/venv/bin/mycroft\0collect\0")
        (process / "root").symlink_to(root)
    (tmp_path / "other" / shared.relative_to("/")).mkdir(parents=True)
    (tmp_path / "proc" / "8").mkdir()
    (tmp_path / "proc" / "8" / "cmdline").write_bytes(b"/venv/bin/mycroft\0sink\0")
    found = memory.collectors(shared, tmp_path / "proc")
    assert found == [memory.Collector(5, True), memory.Collector(6, False), memory.Collector(7, None)]


@pytest.mark.parametrize(
    ("around", "status"),
    [
        (memory.Surroundings(locked=True), "ok"),
        (memory.Surroundings(collectors=(memory.Collector(5, False),)), "problem"),
        (memory.Surroundings(collectors=(memory.Collector(5, True),)), "warning"),
        (memory.Surroundings(container="docker"), "warning"),
        (memory.Surroundings(), "warning"),
    ],
)
def test_collector(around: memory.Surroundings, status: str) -> None:
    assert memory.check_collector(around, Path("/d")).status == status


# Traced processes


def test_traced_processes(tmp_path: Path) -> None:
    FakeProcess(tmp_path, nonce=1, environment={"MYCROFT_JOB": "train"})
    FakeProcess(tmp_path, nonce=2, state=State.OFF, off_reason=1, environment={"MYCROFT_JOB": "train"})
    FakeProcess(tmp_path, nonce=3, applied_tier=Tier.KERNEL, nccl_version=23102)
    dead = FakeProcess(tmp_path, nonce=4, start_ticks=1)
    full = FakeProcess(tmp_path, nonce=5)
    full.header["drops"][0, 3] = 7  # flows
    full.header["drops"][0, 9] = 1000  # refused handles are no loss
    FakeProcess(tmp_path, nonce=6, layout_version=9)
    checks = traced.check_processes(traced.find_processes(tmp_path))
    assert checks[0].says == (
        "6 files: 2 on (flows with NCCL 2.30.7), 1 on (flows, kernel refused with NCCL 2.31.2), 1 off, "
        "1 dead, 1 not readable"
    )
    told = sorted(check.says for check in checks[1:])
    assert statuses(checks[1:]) == ["warning"] * 4
    assert (
        sorted(
            [
                f"pid {dead.pid} is dead; its file stays until a collector has read it",
                f"pid {full.pid} could not keep 7 events: its tables were full",
                f"pid {full.pid} of job train has turned tracing off: somebody shortened its file",
                f"{full.pid}-{full.start}-{6:016x}.mycroft is not read: "
                "layout version 9 is not known here (known: 1)",
            ]
        )
        == told
    )


def test_no_more_lines_than_a_screen_holds() -> None:
    checks = traced.check_processes([traced.Process(f"{n}", refused="a symbolic link") for n in range(20)])
    assert len(checks) == 1 + traced.SHOWN + 1
    assert "14 more" in checks[-1].says


def test_nothing_is_traced(tmp_path: Path) -> None:
    assert traced.find_processes(tmp_path / "absent") == []
    assert statuses(traced.check_processes([])) == ["ok"]


def test_reasons_are_the_plugins() -> None:
    names = re.findall(r"kOff\w+ = (\d)", (NATIVE / "layout.h").read_text())
    assert {int(number) for number in names} - {2} <= set(traced.OFF_REASONS)


# Services and clock


TOPICS = dict.fromkeys(
    (
        "nccl.trace",
        "nccl.members",
        "nccl.waits",
        "nccl.alerts",
        "nccl.verdicts",
        "nccl.baselines",
        "nccl.dead",
    ),
    4,
)


@pytest.mark.parametrize(
    ("broker", "status"),
    [
        (services.Broker("h:1", brokers=3, topics=TOPICS), "ok"),
        (services.Broker("h:1", brokers=3, topics={"nccl.trace": 4}), "problem"),
        (services.Broker("h:1", error="no Kafka answers at h:1"), "problem"),
    ],
)
def test_kafka(broker: services.Broker, status: str) -> None:
    assert services.check_kafka(broker).status == status


def test_kafka_is_away() -> None:
    assert services.look_at_kafka("127.0.0.1:1").error.startswith("no Kafka answers at 127.0.0.1:1")


@pytest.mark.parametrize(
    ("applied", "status", "part"),
    [
        ({1, 2}, "ok", "is migrated"), ({1}, "problem", "lacks 002_b"), ({1, 2, 3}, "problem", "newer"),
        (None, "problem", "without tables"),
    ],
)  # fmt: skip
def test_clickhouse(applied: set[int] | None, status: str, part: str) -> None:
    store = services.Store("http://h:1", "", "25.8", None if applied is None else frozenset(applied))
    check = services.check_clickhouse(store, {1: "001_a", 2: "002_b"})
    assert check.status == status
    assert part in check.says


def test_clickhouse_is_away_and_its_password_is_not_shown() -> None:
    check = services.check_clickhouse(services.look_at_clickhouse("http://me:secret@127.0.0.1:1"), {})
    assert check.status == "problem"
    assert "Connection refused" in check.says
    assert "secret" not in check.says


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (clock.Clock(True, "x", 1500), "ok"),
        (clock.Clock(False, "x"), "warning"),
        (clock.Clock(None, "x"), "warning"),
    ],
)
def test_clock(state: clock.Clock, status: str) -> None:
    assert clock.check_clock(state).status == status


def test_this_clock_can_be_asked() -> None:
    assert clock.look().source


# The whole


def test_gpus(tmp_path: Path) -> None:
    assert gather.gpus(tmp_path) == 0
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        library(tmp_path / "dev", name)
    assert gather.gpus(tmp_path) == 2


def test_all_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ANSWER_S", 0.2)
    asked = gather.Asked(tmp_path, "127.0.0.1:1", "http://127.0.0.1:1", None)
    checks = gather.examine(asked, {})
    assert not ready(checks)
    found = json.loads(as_json(checks))
    assert found["ready"] is False
    assert {check["name"] for check in found["checks"] if check["status"] == "problem"} >= {
        "plugin", "Kafka", "ClickHouse",
    }  # fmt: skip
    assert all(check["remedy"] for check in found["checks"] if check["status"] == "problem")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ANSWER_S", 0.2)
    monkeypatch.setenv("MYCROFT_DATA", str(tmp_path))
    app = typer.Typer()
    app.command()(command.doctor)
    options = ["--dir", str(tmp_path), "--kafka", "127.0.0.1:1", "--clickhouse", "http://127.0.0.1:1"]
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 1
    assert "PROBLEM" in shown.stdout
    assert "Not ready: " in shown.stdout
    told = CliRunner().invoke(app, [*options, "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["ready"] is False
    monkeypatch.setattr(command, "examine", lambda *_: [Check("x", "warning", "meh")])
    shown = CliRunner().invoke(app, options)
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "Ready, with 1 warning.")
