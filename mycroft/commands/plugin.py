"""`mycroft plugin-path`: what NCCL_PROFILER_PLUGIN has to be."""

from __future__ import annotations

from mycroft import plugin
from mycroft.errors import UsageError


def plugin_path() -> None:
    """Print where the NCCL profiler plugin is.

    Example: export NCCL_PROFILER_PLUGIN=$(mycroft plugin-path)
    """
    try:
        print(plugin.plugin_path())
    except FileNotFoundError as error:
        raise UsageError(str(error)) from error
