#!/usr/bin/env bash
# Real NCCL, 2 to 4 ranks on one GPU, AllReduce with and without the plugin in alternation.
#
#   tests/gpu/run.sh [--out DIR] [--ranks N] [--budget SECONDS] [--plugin FILE] [--nccl FILE] [--mps] …
#
# Reports bus bandwidth, its ratio and what the plugin lost; leaves report.json, the logs and a recorded trace in
# DIR. Needs one NVIDIA GPU with its driver, NCCL 2.26 or newer (PyTorch brings one), Python 3.10, and either a built
# plugin or a C++17 compiler. Nothing from the network. Exit status: 0 all well, 1 a run failed or gave wrong sums or
# lost events, 2 wrong arguments, 77 something is missing here (it says what).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
library=libnccl-profiler-mycroft.so
missing=77

lacks() {
  echo "cannot run here: $1" >&2
  exit "$missing"
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || lacks "python3 is missing (name another with PYTHON=…)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || lacks "$python is older than 3.10"

plugin=
asked_help=
arguments=()
while (($#)); do
  case $1 in
    --plugin)
      [[ $# -ge 2 ]] || { echo "--plugin needs a file" >&2; exit 2; }
      plugin=$2
      shift 2
      ;;
    *)
      [[ $1 == --help || $1 == -h ]] && asked_help=yes
      arguments+=("$1")
      shift
      ;;
  esac
done

cd "$root"
if [[ $asked_help ]]; then
  exec "$python" -m tests.gpu.bench --help
fi

# What is missing is said before anything is built.
"$python" -m tests.gpu.bench --check "${arguments[@]}"

if [[ -z $plugin ]]; then
  plugin=$(find "$root/mycroft/native" "$root/native" "$root/build" -name "$library" -print -quit 2>/dev/null || true)
fi
if [[ -z $plugin ]]; then
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
  if command -v cmake >/dev/null; then
    if ! { cmake -S native -B "$build" && cmake --build "$build" --target nccl-profiler-mycroft; } >"$build/log" 2>&1; then
      tail -n 20 "$build/log" >&2
      lacks "the plugin does not build with CMake"
    fi
    plugin=$build/plugin/$library
  else
    compiler=${CXX:-c++}
    command -v "$compiler" >/dev/null || lacks "no built plugin, and neither cmake nor a C++ compiler to build it: --plugin FILE"
    plugin=$build/$library
    mapfile -t sources < <(find native/plugin -name '*.cpp' ! -name layout_dump.cpp)
    "$compiler" -std=c++17 -O2 -fPIC -shared -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-strict-aliasing \
      -fvisibility=hidden -Wl,-z,nodelete -Wl,--version-script=native/plugin/exports.map -o "$plugin" \
      "${sources[@]}" -ldl -lpthread \
      || lacks "the plugin does not build with $compiler"
  fi
fi
[[ -f $plugin ]] || lacks "$plugin is no file: build the plugin, or name it with --plugin"

status=0
"$python" -m tests.gpu.bench --plugin "$plugin" "${arguments[@]}" || status=$?
exit "$status"
