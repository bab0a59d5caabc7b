"""`recollect worker` and `serve`: the processes that a deployment is made of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.invocation import STAGE_NAMES, Invocation, command, stage_named
from pipelines.cli.outcome import OK
from pipelines.cli.process_holder import admin_key
from pipelines.graph.memory_graphs import is_in_memory
from pipelines.local.python_process import (
    at_first_priority,
    end_with_standard_input,
    python_environment,
)
from pipelines.local.supervision import Backoff
from pipelines.local.workers import ARCHIVE, RECOLLECT
from pipelines.operations.api import serve_api
from pipelines.work.stages import load
from projections.errors import ConfigurationError, LedgerUnavailable

_WORKERS_STOP_TIMEOUT_S = 25.0
"""For the workers of other targets to end in order."""
_REGISTRY_POLL_S = 1.0

app = typer.Typer()


@command(app, "worker", machine=False, example="recollect worker projection")
def worker(
    invocation: Invocation,
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE",
            help=f"{STAGE_NAMES}, or {ARCHIVE}: no stage, it "
            "moves older entries of the ledger into the archive",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="serve this target only; by default the active one, and every other one through "
            "a worker of its own",
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=32, help="blocks applied at once")
    ] = None,
    end_with_parent: Annotated[bool, typer.Option("--end-with-parent", hidden=True)] = False,
) -> int:
    """Run a worker of a stage until it is told to stop (SIGTERM, Ctrl-C).

    Start as many as you like, on as many machines as you like: they share the partitions and take
    over from those that die. Nothing is lost or done twice, however a worker ends.
    """
    if stage == ARCHIVE:
        return int(load("pipelines.operations.archive:run_archiver")(invocation.settings))
    row = stage_named(stage, "STAGE")
    if end_with_parent:
        end_with_standard_input(lambda: os.kill(os.getpid(), signal.SIGKILL))
    settings = invocation.settings
    if concurrency is not None:
        settings = settings.model_copy(update={"worker_concurrency": concurrency})
    run_worker = load("pipelines.work.app:run_worker")  # by name: `serve` needs no Faust
    if target is not None:
        return int(run_worker(row, settings, target))
    served = active_target(invocation)
    dropped = threading.Event()
    others = workers_of_other_targets(invocation, stage, served, dropped, concurrency=concurrency)
    others.start()
    try:
        code = int(run_worker(row, settings, served))
    finally:
        others.stop()
    if dropped.is_set():
        # This process' target is gone: the same command again, which serves the one active now.
        os.execve(sys.executable, [*RECOLLECT, *sys.argv[1:]], python_environment())  # noqa: S606 - our own command line
    return code


@command(app, "serve", machine=False, example="recollect serve --port 8080")
def serve(
    invocation: Invocation,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="port to listen on; 0 takes a free one")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="that take connections from the port; as many as there are cores by default",
        ),
    ] = None,
    insecure_dev: Annotated[
        bool, typer.Option("--insecure-dev", help="run without API keys; for a laptop only")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            help="file that holds one admin key, for all tenants",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
) -> int:
    """Serve the API until it is told to stop (SIGTERM, Ctrl-C).

    Several processes serve as one: the same answers, limits that they count together, one
    /metrics; one that ends or hangs is started again while the others take what comes.

    Needs API keys (RECOLLECT_API_KEYS, a JSON list) unless --insecure-dev is given.
    """
    changes: dict[str, Any] = {"api_host": host, "api_port": port, "api_processes": processes}
    if insecure_dev:
        changes["insecure_dev"] = True
    if key_file is not None:
        changes["api_keys"] = (admin_key(key_file),)
    given = {name: value for name, value in changes.items() if value is not None}
    settings = invocation.settings.model_copy(update=given)
    try:
        serve_api(settings)
    except OSError as error:
        reason = f"{settings.api_host}:{settings.api_port}: {error.strerror or error}"
        raise ConfigurationError(reason=f"cannot listen on {reason}") from None
    return OK


def active_target(invocation: Invocation) -> str:
    """The target to serve; waits for a ledger that is away, as workers do."""
    pause = threading.Event()
    told = False
    while True:
        try:
            return invocation.services.active().name
        except LedgerUnavailable as error:
            if not told:
                invocation.note(f"waiting: {error}")
                told = True
            pause.wait(1.0)


class TargetWorkers:
    """One child worker for each target beside the one that this process serves.

    The registry is read every second, so a target that a rebuild has finished is kept in step from
    then on, and one that was dropped is left alone. A child ends when this process closes the pipe
    between them: none outlives it, however it ends.

    Args:
        wanted: names of the targets that need a worker of their own now; None when the registry
            cannot be read for the moment.
        command_of: command line of the worker of a target.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[str] | None],
        command_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._wanted = wanted
        self._command_of = command_of
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._due_s: dict[str, float] = {}
        self._begun_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="target-workers", daemon=True)

    def start(self) -> None:
        """Watch the registry from now on."""
        self._thread.start()

    def stop(self, timeout_s: float = _WORKERS_STOP_TIMEOUT_S) -> None:
        """Stop watching, and let the children end in order."""
        self._stop.set()
        self._thread.join()
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _run(self) -> None:
        while not self._stop.is_set():
            wanted = self._wanted()
            if wanted is not None:
                self._settle(set(wanted))
            self._stop.wait(_REGISTRY_POLL_S)

    def _settle(self, wanted: set[str]) -> None:
        for name in list(self._children):
            child = self._children[name]
            if child.poll() is not None:
                del self._children[name]  # started again below when it is still wanted
                self._put_off(name)
            elif name not in wanted:
                child.terminate()
        for name in wanted - set(self._children):
            if time.monotonic() >= self._due_s.get(name, 0.0):
                self._begun_s[name] = time.monotonic()
                # It steps back by itself, and may have to start what must not.
                self._children[name] = at_first_priority(partial(self._started, name))

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command_of(name),
            stdin=subprocess.PIPE,
            # one port cannot serve two: the metrics of a target that stands by are its own
            # worker's, started with --target and a port
            env=python_environment({"RECOLLECT_METRICS_PORT": "0"}),
        )

    def _put_off(self, name: str) -> None:
        """Its next start comes later, the sooner it ended."""
        backoff = self._backoffs.setdefault(name, Backoff())
        backoff.stayed_up(time.monotonic() - self._begun_s[name])
        self._due_s[name] = time.monotonic() + backoff.next_s()


def workers_of_other_targets(
    invocation: Invocation,
    stage: str,
    served: str,
    dropped: threading.Event,
    *,
    concurrency: int | None,
) -> TargetWorkers:
    """Workers for the targets beside `served`; sets `dropped` and stops us when that is gone."""

    def wanted() -> set[str] | None:
        try:
            targets = invocation.services.targets.all()
        except LedgerUnavailable:
            return None
        if targets and served not in {target.name for target in targets} and not dropped.is_set():
            dropped.set()
            os.kill(os.getpid(), signal.SIGTERM)
        return {
            target.name
            for target in targets
            if target.name != served
            and target.state != "building"
            and not is_in_memory(target.uri)  # that is the business of who holds it
        }

    def command_of(name: str) -> list[str]:
        options = ["--target", name, "--end-with-parent", *shared_options(invocation)]
        if concurrency is not None:
            options += ["--concurrency", str(concurrency)]
        return [*RECOLLECT, "worker", stage, *options]

    return TargetWorkers(wanted, command_of)


def shared_options(invocation: Invocation) -> list[str]:
    """The shared options again, for a child on the same services. Secrets go by environment."""
    options: list[str] = []
    for name, value in (
        ("--redis", invocation.redis),
        ("--neo4j", invocation.neo4j),
        ("--data", invocation.data),
    ):
        if value is not None:
            options += [name, str(value)]
    return options
