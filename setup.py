"""Builds the plugin, the testbed and the collector's native part with CMake and ships them in the package
`mycroft`; the rest is in pyproject.toml.

MYCROFT_NO_NATIVE=1 leaves it out, for machines that only diagnose. Needs CMake 3.20 and a C++17 compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path(__file__).parent.resolve() / "native"
BUILT = {
    "plugin": ("nccl-profiler-mycroft", "plugin/libnccl-profiler-mycroft.so"),
    "testbed": ("mycroft-testbed", "testbed/mycroft-testbed"),
    "collector": ("mycroft-collector", "collector/libmycroft-collector.so"),
}
"""By name of the extension module in mycroft.native that stands for it: target and result."""


class NativeBuild(build_ext):
    """Plain shared libraries and a program, the same for every Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the suffix of a Python module: NCCL, we or the shell open it; nobody imports it."""
        *packages, name = fullname.split(".")
        return str(Path(*packages) / Path(BUILT[name][1]).name)

    def build_extension(self, ext: Extension) -> None:
        """Configure, build, copy."""
        work = Path(self.build_temp).resolve() / "native"
        subprocess.run(["cmake", "-S", SOURCE, "-B", work, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"], check=True)
        target, result = BUILT[ext.name.rpartition(".")[2]]
        subprocess.run(["cmake", "--build", work, "--parallel", "--target", target], check=True)
        replace(work / result, Path(self.get_ext_fullpath(ext.name)))

    def copy_extensions_to_source(self) -> None:
        """Editable installs: beside the package's own files."""
        for ext in self.extensions:
            name = self.get_ext_filename(ext.name)
            replace(Path(self.build_lib) / name, SOURCE.parent / name)


def replace(source: Path, target: Path) -> None:
    """A running job may have the old library mapped, so a new file takes its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    shutil.copy(source, fresh)
    fresh.replace(target)


wanted = sys.platform == "linux" and not os.environ.get("MYCROFT_NO_NATIVE")

setup(
    ext_modules=[Extension(f"mycroft.native.{name}", sources=[]) for name in BUILT] if wanted else [],
    cmdclass={"build_ext": NativeBuild},
)
