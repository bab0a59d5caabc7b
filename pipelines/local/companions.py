"""Detached holders of processes look after each other: one that was killed is started again.

There are those of `up --detach` (Valkey and the targets), of further targets, and of workers and
the API. Each notes its own command line once all it holds is ready, and strikes it out when it is
told to end; so one that is noted and does not hold its lock was killed. What it held died with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.local.data_folder import (
    companions_file,
    is_locked,
    locked,
    run_dir,
)
from pipelines.local.private_files import keep_small, write_json
from pipelines.local.processes import POLL_S, reap, spawn_detached, wait_until
from pipelines.local.supervision import Supervised, tell_stderr

LOOK_EVERY_S = 1.0
_LOCKED_S = 30.0
"""For a process that was started to take its lock."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One detached holder.

    Attributes:
        name: among the holders of a data folder.
        lock: file whose lock it holds for as long as it lives.
        log: file that it prints to.
        command: its command line.
        pid: its process.
    """

    name: str
    lock: str
    log: str
    command: tuple[str, ...]
    pid: int


@contextmanager
def watched(data_dir: Path, name: str, log: Path | None = None) -> Iterator[None]:
    """Look after the other detached holders of the folder until the block ends.

    One that is detached itself says so with `noted`, further outwards.

    Args:
        data_dir: folder of everything.
        name: of this holder.
        log: file that it prints to, kept small; None: it prints to a person.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_look_after, args=(data_dir, name, log, stop), name="companions", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        # It may wait for the lock that `down` holds while it waits for this process to end.
        thread.join(LOOK_EVERY_S)


@contextmanager
def noted(data_dir: Path, name: str, *, lock: Path, log: Path) -> Iterator[None]:
    """Have this process started again, as it was, if it ends in any way but by leaving the block.

    A block that is left by an error is not struck out: its process failed, and is still wanted.
    """
    command = (sys.executable, *sys.orig_argv[1:])
    _note(
        data_dir,
        Holder(name=name, lock=str(lock), log=str(log), command=command, pid=os.getpid()),
    )
    yield
    _strike(data_dir, name)


def forget_all(data_dir: Path) -> None:
    """Nobody is wanted any more: what is noted is from before the machine was switched off."""
    companions_file(data_dir).unlink(missing_ok=True)


def wanted(data_dir: Path) -> dict[str, Holder]:
    """The holders that are noted, by name."""
    try:
        rows: dict[str, Any] = json.loads(companions_file(data_dir).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: Holder(**{**row, "command": tuple(row["command"])}) for name, row in rows.items()}


def _note(data_dir: Path, holder: Holder) -> None:
    _write(data_dir, lambda holders: {**holders, holder.name: holder})


def _strike(data_dir: Path, name: str) -> None:
    _write(data_dir, lambda holders: {n: row for n, row in holders.items() if n != name})


def _write(data_dir: Path, change: Any) -> None:
    with locked(run_dir(data_dir) / "companions.lock"):
        holders = change(wanted(data_dir))
        write_json(companions_file(data_dir), {name: asdict(row) for name, row in holders.items()})


class Companion:
    """Another holder, as a child that is kept up: it lives for as long as its lock is held.

    Args:
        data_dir: folder of everything.
        holder: how it was noted.
    """

    silence_s = float("inf")

    def __init__(self, data_dir: Path, holder: Holder) -> None:
        self.name = f"holder {holder.name}"
        self._data_dir = data_dir
        self._holder = holder
        self._environment = _environment_of(holder.pid)

    def follow(self, holder: Holder) -> None:
        """It was noted again: another process, perhaps with another environment."""
        if holder != self._holder:
            self._holder, self._environment = holder, _environment_of(holder.pid)

    @property
    def pid(self) -> int | None:
        """Its process, while it holds its lock."""
        return self._holder.pid if is_locked(Path(self._holder.lock)) else None

    @property
    def log_path(self) -> Path:
        """What it prints to."""
        return Path(self._holder.log)

    def answers(self) -> bool:
        """Whether it lives."""
        return self.pid is not None

    def start(self) -> None:
        """Start it as it was started before, unless somebody else just did, or does not want it."""
        # `up` and `down` hold this lock: what they start or stop is theirs meanwhile.
        with locked(run_dir(self._data_dir) / "up.lock"):
            if self._holder.name not in wanted(self._data_dir) or self.answers():
                return
            process = spawn_detached(self._holder.command, self.log_path, self._environment)
            reap(process)
            wait_until(lambda: self.answers() or _has_ended(process), _LOCKED_S)

    def kill(self) -> None:
        """Never asked for: its silence is no reason."""

    def stop(self) -> None:
        """It is not ours to stop."""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _environment_of(pid: int) -> Mapping[str, str] | None:
    """The environment a process was started with, where the system shows it; None: nobody knows.

    Kept in memory only: there may be keys and passwords in it.
    """
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _look_after(data_dir: Path, own_name: str, own_log: Path | None, stop: threading.Event) -> None:
    held: dict[str, tuple[Companion, Supervised]] = {}
    while not stop.wait(LOOK_EVERY_S):
        if own_log is not None:
            keep_small(own_log)
        others = {name: row for name, row in wanted(data_dir).items() if name != own_name}
        for name in held.keys() - others.keys():
            del held[name]
        for name, row in others.items():
            if name not in held:
                held[name] = _supervised(Companion(data_dir, row))
            companion, supervised = held[name]
            companion.follow(row)
            if stop.wait(min(supervised.step(), POLL_S)):
                return


def _supervised(companion: Companion) -> tuple[Companion, Supervised]:
    def tell(what: str) -> None:
        tell_stderr(companion.name, what)

    return companion, Supervised(companion, tell=tell)
