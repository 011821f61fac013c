"""Every setting of Mycroft, in one place.

Read, later ones winning, from `mycroft.toml` in the working directory (or the file that MYCROFT_CONFIG names)
and from the environment: MYCROFT_KAFKA, MYCROFT_CLICKHOUSE, … Command-line options win over both.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

_PREFIX = "MYCROFT_"


class BadSettings(ValueError):
    """The settings cannot be used; the text says which, where they come from and why."""


class Settings(BaseSettings):
    """Defaults suit the embedded stack; each default's reason stands in its description."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", allow_inf_nan=False)

    def __init__(self, **given: Any) -> None:
        """Raises BadSettings."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise BadSettings("; ".join(_why(each, given) for each in error.errors())) from error

    kafka: str = Field("127.0.0.1:9092", description="bootstrap servers of Kafka")
    clickhouse: str = Field("http://127.0.0.1:8123", description="URL of ClickHouse's HTTP interface")
    alertmanager: str = Field("http://127.0.0.1:9093", description="URL of Alertmanager, for the notifier")
    partitions: int = Field(
        4,
        ge=1,
        le=4096,
        description="partitions of each topic that has to be created; the embedded broker has 4",
    )
    replication: int = Field(1, ge=1, le=16, description="replicas of each topic that has to be created")
    snapshot_timeout_s: float = Field(
        30.0, gt=0, description="how long a snapshot may lack partitions before it is judged without them"
    )
    epoch_timeout_s: float = Field(
        3.0,
        gt=0,
        description="how long an epoch waits for the markers of all partitions (each comes every second)",
    )
    max_lag_bytes: int = Field(
        2 * 1024 * 1024,
        ge=1024,
        description="an importer keeps less than this unread in a partition; the embedded broker keeps 5 MB",
    )

    severity_late_warning_s: float = Field(
        60.0,
        ge=0,
        description="seconds after which a launch that does not come, or a wait outside NCCL, is a warning: "
        "checkpoints and evaluation take tens of seconds on one rank while all others wait",
    )
    severity_late_critical_s: float = Field(
        300.0,
        ge=0,
        description="and critical: half of the 10 minutes that PyTorch waits before it ends the job",
    )
    severity_gpu_warning_s: float = Field(
        10.0,
        ge=0,
        description="seconds after which a GPU that is not seen to progress is a warning: it may compute "
        "something that NCCL does not show",
    )
    severity_gpu_critical_s: float = Field(
        60.0, ge=0, description="and critical: longer than kernels of training run"
    )
    severity_wire_critical_s: float = Field(
        10.0,
        ge=0,
        description="seconds after which a wire that does not deliver, a warning at once, is critical: "
        "a port that flaps is back by then",
    )
    severity_warning_steps: float = Field(
        3.0,
        ge=0,
        description="training steps that have to pass as well before a late launch or a GPU is a warning: "
        "within one it may be computing, and some steps take twice the usual time",
    )
    severity_critical_steps: float = Field(10.0, ge=0, description="and before it is critical")

    dir: Path = Field(
        Path("/dev/shm/mycroft"), description="folder of the plugin's shared-memory files, for the collector"
    )
    host: str = Field("", description="name of this host in records; default: its host name")
    collector_budget_bytes: int = Field(
        128 * 1024,
        ge=0,
        description="bytes a second that a host sends when nothing stalls, 0 for no limit: "
        "16,384 ranks on 2,048 hosts then send 256 MB/s in all at most",
    )
    collector_comm_records: int = Field(
        100_000,
        ge=0,
        description="records a second of one communicator over all its ranks, 0 for no limit: "
        "they meet in one partition, which one core reads",
    )
    collector_backlog_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1 << 20,
        description="what a collector keeps while Kafka is away, some four minutes at the default budget",
    )
    collector_linger_s: float = Field(
        30.0, ge=0, description="how long a dead process is still told of before its file is removed"
    )
    collector_metrics_port: int = Field(
        9479, ge=0, le=65535, description="loopback port of the collector's Prometheus metrics, 0 for none"
    )

    nccl_log: str = Field(
        "",
        description="files that NCCL logs to at INFO (NCCL_DEBUG_FILE), * for %h and %p: they tell the order "
        "of rings within a host, which turns candidates into a culprit; default: none",
    )

    slow_warmup_s: float = Field(
        120.0,
        ge=1,
        description="how long a job's pace is only learned: NCCL connects, caches fill, loss scales settle",
    )
    slow_interval_factor: float = Field(
        2.0, gt=1, description="times the usual interval that are slow at once (the paper's rule)"
    )
    slow_throughput_factor: float = Field(
        0.5, gt=0, lt=1, description="part of the usual throughput that is slow at once (the paper's rule)"
    )
    slow_windows: int = Field(
        3, ge=1, description="for how many windows of a second that has to hold: a checkpoint takes one"
    )
    slow_slack: float = Field(
        0.05,
        gt=0,
        description="what a job may be slower for good, as a part: half of the 10 % that have to be found",
    )
    slow_evidence: float = Field(
        1.0,
        gt=0,
        description="how much slowness beyond the slack has to come together, in windows times part: 20 % "
        "slower for 7 s, 10 % for 20 s; noisy jobs need more by themselves",
    )

    slow_accept_s: float = Field(
        1800.0,
        gt=0,
        description="a job that has been evenly slower for so long, with nobody behind it, has another "
        "shape: what is usual is learned anew",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line, then environment, then file."""
        return init_settings, env_settings, _file_source(settings_cls)


def near(name: str, known: Iterable[str]) -> str:
    """The known name that another may mean, or nothing."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), "")


def _file() -> Path:
    return Path(os.environ.get("MYCROFT_CONFIG") or "mycroft.toml")


def _file_source(settings: type[BaseSettings]) -> PydanticBaseSettingsSource:
    """Settings of the file, none where there is none; raises BadSettings where it cannot be used."""
    path = _file()
    if not path.exists():
        if os.environ.get("MYCROFT_CONFIG"):
            raise BadSettings(f"settings file {path}, which MYCROFT_CONFIG names, is not there")
    elif not path.is_file():
        raise BadSettings(f"settings file {path} is no file: a file of TOML is wanted")
    try:
        source = TomlConfigSettingsSource(settings, toml_file=path)
    except (ValueError, OSError) as error:
        raise BadSettings(f"settings file {path} cannot be read as TOML: {error}") from error
    for name in source.toml_data:
        if name not in settings.model_fields:
            meant = near(name.lower().removeprefix(_PREFIX.lower()), settings.model_fields)
            suggestion = f"; did you mean {meant}?" if meant else ""
            raise BadSettings(f"{path}: no setting is called {name}{suggestion}")
    return source


def _why(error: Any, given: dict[str, Any]) -> str:
    """One of pydantic's errors, with where its value comes from."""
    name = ".".join(str(part) for part in error["loc"]) or "settings"
    variable = next((each for each in os.environ if each.upper() == f"{_PREFIX}{name.upper()}"), None)
    source = "" if name in given else f" from {variable or _file()}"
    return f"setting {name}: {error['msg']} (got {error['input']!r}{source})"
