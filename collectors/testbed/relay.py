"""The relay process (native/testbed/relay.cpp): the network between hosts on loopback, and the warden of all
processes where the starter dies.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from collectors.testbed.errors import TestbedError


class Relay:
    """A running relay. `targets`: host and port of each rank."""

    def __init__(self, executable: Path, targets: list[tuple[int, int]], log: Path) -> None:
        listening = listener()
        self.address: tuple[str, int] = listening.getsockname()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [
                    str(executable),
                    "relay",
                    str(listening.fileno()),
                    *(f"{host}:{port}" for host, port in targets),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=(listening.fileno(),),
                start_new_session=True,
            )
        listening.close()

    def tell(self, command: str) -> int:
        """Give a command; returns when it was done, CLOCK_MONOTONIC in ns. Raises TestbedError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise TestbedError("the relay between the hosts has died") from error
        answer = self.process.stdout.readline().split()
        if len(answer) != 2 or answer[0] != b"done":
            raise TestbedError(f"the relay between the hosts does not answer to {command!r}: {answer!r}")
        return int(answer[1])

    def close(self) -> None:
        """End it, and not what it watches over."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def listener() -> socket.socket:
    """A socket that listens on loopback."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # small, as the accepted ones inherit (transport.h)
        made.setsockopt(socket.SOL_SOCKET, option, 16 * 1024)
    made.bind(("127.0.0.1", 0))
    made.listen(4096)
    return made
