"""`recollect top`: what happens now, in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pipelines.cli.ask import Api, KeyFile, api_place
from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import AWAY, OK, write_json_line
from pipelines.operations.api import RunningApi
from pipelines.operations.rates import Look, look, rates

app = typer.Typer()
_KEPT: Final = 60
"""Looks that the small curves show."""
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_MIB: Final = 2**20


@command(app, "top", example="recollect top")
def top(
    invocation: Invocation,
    once: Annotated[
        bool, typer.Option("--once", help="print what one interval showed, and end")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="seconds between two looks")
    ] = 2.0,
    api: Api = None,
    key_file: KeyFile = None,
) -> int:
    """Watch lag, events and questions a second, latencies, dead letters and memory, until Ctrl-C.

    What is counted is what `recollect status` says and the API shows to Prometheus. The API is that
    of the embedded services, or --api. With --json each interval is one line. The exit code is 3
    when the graph cannot be reached.
    """
    place = api_place(invocation, api, key_file)
    source = None if place is None else RunningApi(*place)
    before = look(invocation.services, source)
    if once:
        document = _next(invocation, source, before, interval_s)[1]
        invocation.answer(document, lambda out: out.print(picture(document, [document])))
        return AWAY if document["errors"] else OK
    if invocation.json:
        while True:
            before, document = _next(invocation, source, before, interval_s)
            write_json_line(document)
    shown: deque[dict[str, Any]] = deque(maxlen=_KEPT)
    with suppress(KeyboardInterrupt), Live(console=invocation.out, auto_refresh=False) as live:
        while True:
            before, document = _next(invocation, source, before, interval_s)
            shown.append(document)
            live.update(picture(document, shown), refresh=True)
    return OK


def _next(
    invocation: Invocation, api: RunningApi | None, before: Look, interval_s: float
) -> tuple[Look, dict[str, Any]]:
    time.sleep(interval_s)
    after = look(invocation.services, api)
    return after, rates(before, after)


def picture(document: Mapping[str, Any], shown: Iterable[Mapping[str, Any]]) -> RenderableType:
    """What one interval showed, for a person.

    Args:
        document: of `rates`.
        shown: those of the intervals before, and this one, for the curves.
    """
    earlier = list(shown)
    parts: list[RenderableType] = [
        _stages(document["stages"]),
        "",
        _line("events in", document["appended_per_s"], [e["appended_per_s"] for e in earlier]),
    ]
    api = document["api"]
    if api is None:
        missing = document["api_missing"] or "it has just begun to answer"
        parts.append(f"[dim]questions[/dim] [yellow]{escape(missing)}[/yellow]")
    else:
        questions = [e["api"]["queries_per_s"] for e in earlier if e["api"] is not None]
        parts += [_line("questions", api["queries_per_s"], questions), *_latency(api)]
    parts.append(_memory(document["memory"]))
    parts += [
        f"[red]partition {partition} halted: {escape(reason)} (recollect recover)[/red]"
        for partition, reason in document["halted_partitions"].items()
    ]
    parts += [f"[red]{escape(error['message'])}[/red]" for error in document["errors"]]
    if not document["ok"] and not document["errors"]:
        parts.append("[yellow]something needs attention: recollect status[/yellow]")
    return Group(*parts)


def _stages(stages: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("stage", "lag", "seconds behind", "folded/s", "caught up in", "dead letters"):
        table.add_column(head, justify="left" if head == "stage" else "right", min_width=9)
    for name, stage in stages.items():
        lag, letters = stage["lag_entries"], stage["dead_letters"]
        if not stage["started"]:
            table.add_row(f"[bold]{name}[/bold]", "[dim]never started[/dim]")
            continue
        cells = (
            f"[bold]{name}[/bold]",
            f"[{'yellow' if lag else 'green'}]{lag:,}[/]",
            f"{stage['lag_seconds']:.1f}",
            _per_s(stage["folded_per_s"]),
            "[red]it holds[/red]" if stage["held"] else _catching_up(lag, stage["folded_per_s"]),
            f"[{'red' if letters else 'green'}]{letters:,}[/]",
        )
        table.add_row(*cells)
    return table


def _catching_up(lag: int, folded_per_s: float | None) -> str:
    """How long it would take if nothing more came."""
    if not lag:
        return ""
    if not folded_per_s:
        return "[yellow]it stands still[/yellow]"
    return f"{lag / folded_per_s:,.0f} s"


def _per_s(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def _line(name: str, now: float, earlier: list[float]) -> str:
    return f"[dim]{name:<9}[/dim] [bold]{_per_s(now):>7}[/bold]/s  [cyan]{curve(earlier)}[/cyan]"


def curve(numbers: list[float]) -> str:
    """Numbers as a row of bars, the highest of them as high as a line."""
    highest = max(numbers, default=0.0)
    if not highest:
        return _LEVELS[0] * len(numbers)
    return "".join(_LEVELS[round((len(_LEVELS) - 1) * number / highest)] for number in numbers)


def _latency(api: Mapping[str, Any]) -> list[str]:
    told = {name: ms for name, ms in api["query_ms"].items() if ms is not None}
    lines = []
    if told:
        shown = "  ".join(f"{name} [bold]{ms:,.0f}[/bold] ms" for name, ms in told.items())
        partial = api["partial_per_s"]
        more = f"  [yellow]{_per_s(partial)}/s partial[/yellow]" if partial else ""
        lines.append(f"[dim]{'answered':<9}[/dim] {shown}{more}")
    errors = api["errors_per_s"]
    told_errors = f"  [red]{_per_s(errors)}/s failed[/red]" if errors else ""
    connections = f"{api['connections'] or 0:,.0f} connections"
    per_s = f"{_per_s(api['requests_per_s']):>7}/s"
    lines.append(f"[dim]{'requests':<9}[/dim] {per_s}  {connections}{told_errors}")
    return lines


def _memory(memory: Mapping[str, Any]) -> str:
    limit = memory["redis_max_bytes"]
    of_limit = f" of {limit / _MIB:,.0f}" if limit else ""
    parts = [f"Redis {memory['redis_bytes'] / _MIB:,.0f}{of_limit} MiB"]
    for name, field in (("columns", "columns_bytes"), ("API", "api_bytes")):
        if memory[field]:
            parts.append(f"{name} {memory[field] / _MIB:,.0f} MiB")
    return f"[dim]{'memory':<9}[/dim] {', '.join(parts)}"
