"""The embedded services, which the distribution `recollect` brings; started as its command does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recollect.errors import LocalServicesFailed

DATA: Final = ".recollect"


def data_folder(given: str | Path | None) -> Path:
    """The folder that is given, else the one that `recollect` itself would take."""
    return Path(given or os.environ.get("RECOLLECT_DATA_DIR") or DATA)


@dataclass(frozen=True)
class LocalServices:
    """What runs on a data folder.

    Attributes:
        data: the folder.
        url: of the API.
        key: for it.
        is_ours: they did not run before.
    """

    data: Path
    url: str
    key: str
    is_ours: bool

    @classmethod
    def start(cls, data: Path) -> LocalServices:
        """Start what does not run yet; what runs is joined, whichever edition it is.

        Raises:
            LocalServicesFailed: `recollect` is not installed, or they do not start; or the keys
                are a setting, so that no file holds one.
        """
        command = _command()
        is_ours = not _is_running(data)
        edition = "--all" if is_ours else _edition(data)
        told = _run([*command, "up", "--detach", edition, "--json", "--data", str(data)])
        if told["api_key_file"] is None:
            raise LocalServicesFailed(
                f"The API at {told['api_url']} takes the keys of RECOLLECT_API_KEYS: name one, "
                f'Memory("{told["api_url"]}", key)'
            )
        key = Path(told["api_key_file"]).read_text(encoding="ascii").strip()
        return cls(data, told["api_url"], key, is_ours)

    def stop(self) -> None:
        """Stop them, unless somebody else started them; the data stay.

        Raises:
            LocalServicesFailed: they do not stop.
        """
        if self.is_ours:
            _run([*_command(), "down", "--json", "--data", str(self.data)])


def _command() -> list[str]:
    """The command of the distribution, of this environment first."""
    beside = Path(sys.executable).with_name("recollect")
    command = str(beside) if beside.exists() else shutil.which("recollect")
    if command is None:
        raise LocalServicesFailed(
            "Memory.local() starts the services of the distribution `recollect`, which is not "
            "installed here: pip install recollect, or name the address of a running API: "
            "Memory(url, key)"
        )
    return [command]


def _is_running(data: Path) -> bool:
    """Whether a process holds workers and API on this folder; it locks a file while it lives."""
    lock = data / "run" / "processes.lock"
    try:
        import fcntl  # not on Windows, where nothing embedded runs

        with lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except (ImportError, FileNotFoundError):
        return False
    return False


def _edition(data: Path) -> str:
    """The option of `up` by which what runs on this folder was started."""
    try:
        noted = json.loads((data / "run" / "companions.json").read_text())
        return "--small" if "--small" in noted["processes"]["command"] else "--all"
    except (OSError, ValueError, LookupError):
        return "--all"


def _run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        told = {}
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip())[-2_000:]
        raise LocalServicesFailed(f"{' '.join(command)} exited with {done.returncode}: {words}")
    return told
