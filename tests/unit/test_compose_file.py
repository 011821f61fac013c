"""docker-compose.yml, Dockerfile and .env.example as data."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
_COMPOSE: dict[str, Any] = yaml.safe_load((_ROOT / "docker-compose.yml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_ONCE = ("topics", "migrations", "mycroft", "testbed")
"""What ends by itself."""
_OURS = ("topics", "migrations", "worker", "sink", "collector", "mycroft", "testbed")
_PASSWORDS = {
    "CLICKHOUSE_MIGRATIONS_PASSWORD",
    "CLICKHOUSE_SINK_PASSWORD",
    "CLICKHOUSE_READER_PASSWORD",
    "GRAFANA_ADMIN_PASSWORD",
}
_BYTES = {"m": 1 << 20, "g": 1 << 30}


def _version() -> str:
    found = re.search(r'^version = "(.+)"$', (_ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_every_tag_is_exact() -> None:
    images = {service["image"] for service in _SERVICES.values()}
    images |= set(re.findall(r"^FROM (\S+:\S+)", (_ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {image.partition(":")[0] for image in images} == {
        "apache/kafka", "clickhouse/clickhouse-server", "grafana/grafana", "mycroft", "python",
    }  # fmt: skip
    for image in images:
        assert re.search(r":\d+\.\d+\.\d+", image), image
    plugin = _SERVICES["grafana"]["environment"]["GF_PLUGINS_PREINSTALL_SYNC"]
    assert re.fullmatch(r"grafana-clickhouse-datasource@\d+\.\d+\.\d+", plugin)


@pytest.mark.parametrize("name", _OURS)
def test_our_image_has_the_package_s_version_and_little_power(name: str) -> None:
    service = _SERVICES[name]
    assert (service["image"], service["build"]) == (f"mycroft:{_version()}", ".")
    assert service["cap_drop"] == ["ALL"]
    added = {"collector": (["FOWNER"], "host", "host", "root")}.get(name, (None, None, None, None))
    wanted = tuple(service.get(key) for key in ("cap_add", "pid", "network_mode", "user"))
    assert wanted == added


@pytest.mark.parametrize("name", _SERVICES)
def test_each_service_has_limits_and_keeps_its_log_short(name: str) -> None:
    service = _SERVICES[name]
    number, unit = re.fullmatch(r"(\d+)([mg])", service["mem_limit"]).groups()  # type: ignore[union-attr]
    assert 256 << 20 <= int(number) * _BYTES[unit] <= 4 << 30
    assert 0 < service["cpus"] <= 2
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", _SERVICES)
def test_what_stays_has_a_health_check_and_comes_back(name: str) -> None:
    service = _SERVICES[name]
    if name in _ONCE:
        assert service["restart"] == "no"
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert {"interval", "timeout", "retries", "start_period"} < service["healthcheck"].keys()


def test_order_of_start() -> None:
    order = {
        (name, other, condition["condition"].removeprefix("service_"))
        for name, service in _SERVICES.items()
        for other, condition in service.get("depends_on", {}).items()
    }
    assert order == {
        ("topics", "kafka", "healthy"),
        ("migrations", "clickhouse", "healthy"),
        ("worker", "topics", "completed_successfully"),
        ("sink", "topics", "completed_successfully"),
        ("sink", "migrations", "completed_successfully"),
        ("collector", "topics", "completed_successfully"),
        ("grafana", "clickhouse", "healthy"),
        ("grafana", "migrations", "completed_successfully"),
        ("testbed", "worker", "healthy"),
        ("testbed", "sink", "healthy"),
    }


def test_ports_are_on_loopback_unless_kafka_is_told_otherwise() -> None:
    ports = {name: service["ports"] for name, service in _SERVICES.items() if "ports" in service}
    assert ports == {
        "kafka": ["${MYCROFT_ADDRESS:-127.0.0.1}:${KAFKA_PORT:-9092}:9092"],
        "clickhouse": ["127.0.0.1:${CLICKHOUSE_PORT:-8123}:8123"],
        "grafana": ["127.0.0.1:${GRAFANA_PORT:-3000}:3000"],
    }


def test_data_lies_in_named_volumes() -> None:
    named = {
        name: [mount for mount in service.get("volumes", ()) if mount[0] not in "./$"]
        for name, service in _SERVICES.items()
    }
    assert {name: mounts for name, mounts in named.items() if mounts} == {
        "kafka": ["kafka:/var/lib/kafka/data"],
        "clickhouse": ["clickhouse:/var/lib/clickhouse"],
        "grafana": ["grafana:/var/lib/grafana"],
    }
    assert _COMPOSE["volumes"].keys() == {"kafka", "clickhouse", "grafana"}
    for service in _SERVICES.values():
        for mount in service.get("volumes", ()):
            if mount.startswith("./"):
                assert (_ROOT / mount.split(":")[0]).exists()
                assert mount.endswith(":ro")


def test_no_password_is_written_down_and_none_may_be_missing() -> None:
    values = [
        str(value)
        for service in _SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if "PASSWORD" in name or "@clickhouse" in str(value)
    ]
    assert len(values) >= len(_PASSWORDS)
    for value in values:
        secret = re.fullmatch(
            r"(?:http://\w+:)?\$\{(\w+):\?run make \.env first\}(?:@clickhouse:8123)?", value
        )
        assert secret, value
        assert secret[1] in _PASSWORDS
    users = (_ROOT / "deploy" / "clickhouse" / "users.xml").read_text()
    assert set(re.findall(r'<password from_env="(\w+)"/>', users)) == _PASSWORDS - {"GRAFANA_ADMIN_PASSWORD"}
    assert users.count("<password") == 3


def test_the_user_of_each_service_is_its_own() -> None:
    used = {
        name: re.findall(r"http://(\w+):", str(service.get("environment", {}).get("MYCROFT_CLICKHOUSE", "")))
        for name, service in _SERVICES.items()
    }
    assert {name: users for name, users in used.items() if users} == {
        "migrations": ["migrations"], "sink": ["sink"], "mycroft": ["reader"],
    }  # fmt: skip


def test_the_example_names_every_setting_of_the_file() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (_ROOT / "docker-compose.yml").read_text()))
    example = (_ROOT / ".env.example").read_text()
    assert set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE)) == asked
    for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", (_ROOT / "docker-compose.yml").read_text()):
        assert f"# {name}={default}\n" in example
    assert set(re.findall(r"^([A-Z_]+)=$", example, re.MULTILINE)) == _PASSWORDS


def test_make_env_makes_passwords_once(tmp_path: Path) -> None:
    for name in ("Makefile", ".env.example"):
        (tmp_path / name).write_text((_ROOT / name).read_text())
    made = []
    for _ in range(2):
        subprocess.run(["make", ".env"], cwd=tmp_path, check=True, capture_output=True)
        made.append((tmp_path / ".env").read_text())
    assert made[0] == made[1]
    passwords = dict(re.findall(r"^([A-Z_]+)=(\w+)$", made[0], re.MULTILINE))
    assert passwords.keys() == _PASSWORDS
    assert len(set(passwords.values())) == len(_PASSWORDS)
    assert all(re.fullmatch("[0-9a-f]{32}", password) for password in passwords.values())
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


def test_the_image_is_built_of_what_the_tests_have_tested() -> None:
    pins = [
        set(re.findall(r"^([\w.-]+==\S+)", (_ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.image.lock", "requirements.lock")
    ]
    assert len(pins[0]) > 50
    assert pins[0] < pins[1]


def test_grafana_has_what_its_provisioning_asks_for() -> None:
    grafana = _SERVICES["grafana"]
    folder = _ROOT / "queries" / "grafana" / "provisioning"
    asked = set(re.findall(r"\$(MYCROFT_\w+)", (folder / "datasources" / "mycroft.yaml").read_text()))
    assert asked
    assert asked == {name for name in grafana["environment"] if name.startswith("MYCROFT_")}
    provider = yaml.safe_load((folder / "dashboards" / "mycroft.yaml").read_text())["providers"][0]
    targets = [mount.split(":")[1] for mount in grafana["volumes"]]
    assert {"/etc/grafana/provisioning", provider["options"]["path"]} < set(targets)
