"""Lives those tests alone that failed beside others: `python -m tests.alone`, after pytest by `make test`.

Live tests watch a pipeline in real time, two at once on a machine that others may use too; one may fail
there for want of a processor. Such a test gets one more run with the machine to itself, and is named at the
end either way. Nothing that computes the same however slowly (unit tests, native code) is asked twice, and
nothing is where more fails than a busy moment explains.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAILED = ROOT / ".pytest_cache/v/cache/lastfailed"
MOST = 3


def may_live_again(failed: Iterable[str]) -> list[str]:
    """The tests of `failed` (pytest's node ids) if all of them may be asked once more, else none."""
    tests = list(failed)
    live = all(test.startswith("tests/integration/") and "::" in test for test in tests)
    native = any("/test_native.py" in test for test in tests)
    return tests if live and not native and len(tests) <= MOST else []


def main() -> int:
    """0 if all that failed passes now."""
    failed = json.loads(FAILED.read_text()) if FAILED.exists() else {}
    again = may_live_again(failed)
    if not again:
        return 1
    names = "".join(f"\n  {test}" for test in again)
    print(f"\nFAILED beside others, now lived alone:{names}", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", *again], cwd=ROOT, check=False).returncode
    print(f"\n{'PASSED ONLY ALONE' if status == 0 else 'FAILED ALONE TOO'}:{names}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
