"""`python -m tests.bench.small [--events N]`: what the small edition takes to start, and to run.

From the command to the first answer, on an empty folder and again on the memory that it then has;
seconds on the wall, which others of a shared machine make longer, and of processor time of all
processes until then. Memory is PSS of all of them together, the models' processes among them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import orjson

from pipelines.local.data_folder import read_holder
from pipelines.local.processes import free_port
from pipelines.local.python_process import python_command
from projections.events import as_envelope
from tests.factories import event

INCIDENT: Final = Path("pipelines/scenarios/payment_incident.jsonl")
_QUESTION: Final = "Why did the payment fail?"
_TEXT: Final = (
    "we moved the order to Oslo and refund a lamp ticket before the bank declined it again while "
    "maya asked for another invoice"
)
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PATIENCE_S: Final = 900.0


class Edition:
    """A small edition in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {
            "RECOLLECT_MODEL_PROCESS_DIR": str(folder / "s"),
            "RECOLLECT_API_PORT": str(free_port()),
        }

    def run(self, *words: str) -> str:
        command = python_command("pipelines.cli.main", *words, "--data", str(self.folder / "data"))
        done = subprocess.run(command, env=self._environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def ask(self, question: str, **fields: Any) -> Any:
        return self._answer(question, fields, "application/json").json()

    def text(self, question: str, **fields: Any) -> str:
        return self._answer(question, fields, "text/markdown").text

    def fill(self, envelopes: Iterable[Mapping[str, Any]]) -> None:
        """Start it, and import events until they are folded."""
        self.run("up", "--small", "--detach")
        recorded = self.folder / "recorded.jsonl"
        recorded.write_bytes(b"\n".join(map(orjson.dumps, envelopes)))
        self.run("import", str(recorded), "--format", "events", "--wait")

    def read(self, path: str, **query: Any) -> Any:
        return self._send("GET", path, params=query).json()

    def _answer(self, question: str, fields: dict[str, Any], accept: str) -> httpx.Response:
        body = {"query": question, "session_id": "s", "agent_id": "a", "user_id": "*"}
        path, document = "/v1/query/subgraph", {**body, **fields}
        return self._send("POST", path, json=document, headers={"accept": accept})

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        held = read_holder(self.folder / "data")
        assert held is not None
        key = Path(held["api_key_file"]).read_text(encoding="utf-8").strip()
        headers = {"X-API-Key": key, **more.pop("headers", {})}
        url = f"{held['api_url']}{path}"
        answer = httpx.request(method, url, headers=headers, timeout=30.0, **more)
        answer.raise_for_status()
        return answer

    def processes(self) -> Iterator[Path]:
        """Those of the folder, and what they started."""
        parents: dict[str, str] = {}
        mine = set()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parents[process.name] = _stat(process)[1]
                if os.fsencode(self.folder) in (process / "cmdline").read_bytes():
                    mine.add(process.name)
        mine.discard(str(os.getpid()))
        for pid in parents:
            above = pid
            while above in parents and above not in mine:
                above = parents[above]
            if above in mine:
                yield Path("/proc") / pid

    def memory_mb(self) -> dict[str, float]:
        held: dict[str, float] = {}
        for process in self.processes():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                name = next((w for w in words if w.startswith(b"pipelines.")), words[0]).decode()
                if b"hold-graph" in words or b"hold-processes" in words:
                    name = "hold-graph" if b"hold-graph" in words else "hold-processes"
                rollup = (process / "smaps_rollup").read_text(encoding="ascii")
                pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
                name = name.rpartition("/")[2]
                held[name] = held.get(name, 0.0) + int(pss.split()[1]) / 1024
        return held

    def processor_s(self) -> float:
        """Of the processes that live; what has ended counts with whoever waited for it."""
        ticks = 0
        for process in self.processes():
            with suppress(OSError):
                ticks += sum(map(int, _stat(process)[11:15]))
        return ticks / _TICKS


def _stat(process: Path) -> list[str]:
    """The fields behind the name."""
    return (process / "stat").read_text(encoding="ascii").rpartition(") ")[2].split()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _first_answer(edition: Edition) -> None:
    begun_s, used = time.monotonic(), os.times()
    edition.run("up", "--small", "--detach")
    answer = edition.ask(_QUESTION)
    wall_s, now = time.monotonic() - begun_s, os.times()
    command_s = sum(now[2:4]) - sum(used[2:4])
    _say(
        f"first answer ({len(answer['nodes'])} nodes) {wall_s:.1f} s after the command, "
        f"{command_s + edition.processor_s():.1f} s of processor time"
    )


def _wait_folded(edition: Edition) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        stages = json.loads(edition.run("status", "--json"))["stages"].values()
        if all(stage["started"] and not stage["lag_entries"] for stage in stages):
            return
        time.sleep(0.5)
    raise TimeoutError("not folded")


@contextmanager
def own_edition(name: str) -> Iterator[Edition]:
    """A small edition in a folder that goes with it; not started yet."""
    edition = Edition(Path(tempfile.mkdtemp(prefix=f"rc-{name}-", dir="/tmp")))
    try:
        yield edition
    finally:
        edition.run("down")
        shutil.rmtree(edition.folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=0, help="beside the incident's 75")
    given = parser.parse_args()
    with own_edition("small") as edition:
        _first_answer(edition)
        edition.run("import", str(INCIDENT))
        if given.events:
            more = edition.folder / "more.jsonl"
            more.write_text("".join(_lines(given.events)), encoding="utf-8")
            edition.run("import", str(more), "--format", "events")
        _wait_folded(edition)
        edition.ask(_QUESTION)
        held = edition.memory_mb()
        for name, megabytes in sorted(held.items(), key=lambda one: -one[1]):
            _say(f"{megabytes:7.0f} MB {name}")
        _say(f"{sum(held.values()):7.0f} MB of all processes together (PSS)")
        edition.run("down")
        _say("again, on what is there:")
        _first_answer(edition)


def _lines(count: int) -> Iterator[str]:
    """Messages of some words, twenty a session."""
    draw = Random(17)
    for number in range(count):
        text = " ".join(draw.choices(_TEXT.split(), k=12))
        said = event(
            number,
            session_id=f"s-{number // 20}",
            event_type="message.user",
            payload={"text": f"{text} {number}."},
        )
        yield json.dumps(as_envelope(said)) + "\n"


if __name__ == "__main__":
    main()
