"""Settings that cannot be meant: which, where they come from, and what may be meant instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft import connections
from mycroft.settings import BadSettings, Settings
from mycroft.variables import unknown


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kafak = 'h:1'", "mycroft.toml: no setting is called kafak; did you mean kafka?"),
        ("MYCROFT_KAFKA = 'h:1'", "mycroft.toml: no setting is called MYCROFT_KAFKA; did you mean kafka?"),
        ("[xyzzy]", "mycroft.toml: no setting is called xyzzy"),
        ("partitions = 'many'", "setting partitions: Input should be a valid integer, unable to parse string"
         " as an integer (got 'many' from mycroft.toml)"),
        ("collector_linger_s = inf", "setting collector_linger_s: Input should be a finite number"
         " (got inf from mycroft.toml)"),
        ("collector_linger_s = nan", "setting collector_linger_s: Input should be a finite number"
         " (got nan from mycroft.toml)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant(folder: Path, text: str, told: str) -> None:
    (folder / "mycroft.toml").write_text(text)
    with pytest.raises(BadSettings) as caught:
        Settings()
    assert str(caught.value) == told


def test_the_environment_is_named_where_its_value_is_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mycroft.toml").write_text("partitions = 3")
    monkeypatch.setenv("MYCROFT_PARTITIONS", "0")
    with pytest.raises(BadSettings, match=r"setting partitions: .* \(got '0' from MYCROFT_PARTITIONS\)"):
        Settings()
    with pytest.raises(BadSettings, match=r"setting partitions: .* \(got 0\)"):
        Settings(partitions=0)


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_is_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    (folder / "mycroft.toml").mkdir()
    if named:
        monkeypatch.setenv("MYCROFT_CONFIG", "mycroft.toml")
    with pytest.raises(BadSettings, match=r"settings file mycroft.toml is no file"):
        Settings()


def test_all_numbers_are_finite() -> None:
    numbers = [name for name, field in Settings.model_fields.items() if field.annotation is float]
    assert len(numbers) > 10
    for name in numbers:
        with pytest.raises(BadSettings, match=name):
            Settings(**{name: float("inf")})


def test_a_variable_that_nothing_reads_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MYCROFT_KAFAK", "h:1")
    connections._warn.cache_clear()
    connections.settings()
    connections.settings()
    told = [line for line in capsys.readouterr().err.splitlines() if "KAFAK" in line]
    assert told == ["mycroft: nothing reads MYCROFT_KAFAK, which is set; did you mean MYCROFT_KAFKA?"]


@pytest.mark.parametrize(
    "name", ["MYCROFT_TEST_PLUGIN", "MYCROFT_CLICKHOUSE_READER", "MYCROFT_SHARED", "MYCROFT_RECORD"]
)
def test_variables_of_others_are_no_mistake(name: str) -> None:
    assert unknown({name: "x"}) == []


def test_what_kubernetes_sets_is_no_mistake() -> None:
    links = {"SERVICE_HOST": "h", "SERVICE_PORT": "1", "PORT": "tcp://h:1", "PORT_1_TCP_ADDR": "h"}
    assert unknown({f"MYCROFT_KAFKA_{name}": value for name, value in links.items()}) == []
    assert unknown({"MYCROFT_KAFKA_PORT": "1"}) != []
