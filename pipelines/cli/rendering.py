"""What several commands print: progress, tables, reports; and the times that options name."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from projections.events import timestamp_ms, timestamp_text

SHOWN_DIFFERENCES = 50
SHOWN_CHARACTERS = 80
"""Of a value that differs."""


class _RateColumn(TextColumn):
    """Things a second; the caller's own figure (`rate`) when the bar counts something else."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        rate = task.fields.get("rate")
        speed = rate if rate is not None else task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "-/s", style="cyan")


class _CountColumn(MofNCompleteColumn):
    """Done of total; the caller's own text (`count`) when the bar counts something else."""

    def render(self, task: Task) -> Text:
        count = task.fields.get("count")
        if count is not None:
            return Text(str(count), style="green")
        if task.total is None:
            return Text(f"{int(task.completed):,}", style="green")
        return Text(f"{int(task.completed):,}/{int(task.total):,}", style="green")


class Progress:
    """One bar for each `what`. Callable as the seam `progress(done, total, what)` asks for."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        columns = (
            *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
            *(_CountColumn(), _RateColumn(), TimeElapsedColumn(), TimeRemainingColumn()),
        )
        self._bars = Bars(*columns, console=console, transient=True, disable=not shown)
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        done: int,
        total: int | None,
        what: str,
        *,
        rate: float | None = None,
        count: str | None = None,
    ) -> None:
        """Move the bar of `what` to `done` of `total` (None: not known).

        `rate` and `count` replace the figures when `done` is in another unit (bytes of a file).
        """
        with self._lock:  # a rebuild tells its progress from several threads
            task = self._tasks.get(what)
            if task is None:
                task = self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(task, completed=done, total=total, rate=rate, count=count)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A spinner for something that tells no progress."""
        task = self._bars.add_task(what, total=None)
        try:
            yield
        finally:
            self._bars.remove_task(task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def show_table(
    out: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], nothing: str, *, right: int
) -> None:
    """Print a table whose last column is dim, or `nothing` when there is no row.

    Args:
        out: where to.
        heads: of the columns.
        rows: plain texts.
        nothing: what to say instead.
        right: the column that is aligned to the right.
    """
    if not rows:
        out.print(f"[dim]{nothing}[/dim]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, head in enumerate(heads):
        last = number == len(heads) - 1
        table.add_column(
            head,
            justify="right" if number == right else "left",
            style="dim" if last else "",
            no_wrap=last,
        )
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


def show_report(out: Console, title: str, document: Mapping[str, Any]) -> None:
    """For a person: every figure of a report, lists cut short."""
    good = document.get("ok", True)
    out.print(f"[{'green' if good else 'red'}]{title}[/]")
    for name, value in document.items():
        label = name.replace("_", " ")
        if name.endswith("_ms") and name != "duration_ms" and isinstance(value, int):
            label, value = label.removesuffix(" ms"), timestamp_text(value)
        if name == "stages":
            for stage, finding in value.items():
                out.print(f"  {stage}: {line(finding)}", markup=False)
        elif isinstance(value, list):
            out.print(f"  {label}: {len(value):,}")
            for item in value[:SHOWN_DIFFERENCES]:
                text = line(item) if isinstance(item, Mapping) else str(item)
                out.print(f"    {text}", markup=False)
            if len(value) > SHOWN_DIFFERENCES:
                out.print(f"    and {len(value) - SHOWN_DIFFERENCES:,} more (--json lists them)")
        elif isinstance(value, Mapping):
            out.print(f"  {label}: {line(value) or 0}", markup=False)
        elif name != "ok":
            shown = _shown(value)
            out.print(f"  {label}: {shown}", markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def show_verified(out: Console, document: Mapping[str, Any]) -> None:
    """For a person: the verdict, the digest, what differs, and what was compared."""
    count, events = document["difference_count"], f"{document['events']:,} events"
    if count:
        out.print(f"[red]✗ divergence[/red]  {count:,} differences in {events}")
    else:
        digest = document["digest"]
        out.print(f"[green]✓ same[/green]  {events}  digest [bold]{digest}[/bold]")
    for name, remark in (
        ("repaired", "differences mended"),
        ("waiting_parent_count", "parents never seen"),
        ("dead_letter_count", "dead letters (recollect dead-letters list)"),
        ("unread", "events whose payload or answer cannot be read any more"),
    ):
        if document[name]:
            out.print(f"  [yellow]{document[name]:,} {remark}[/yellow]")
    for name, stage in document["stages"].items():
        if stage["lag_entries"]:
            out.print(f"  [yellow]{stage['lag_entries']:,} entries not folded by {name} yet[/]")
    for note in document["notes"]:
        out.print(f"  [yellow]{note}[/yellow]")
    differences = document["differences"]
    for difference in differences[:SHOWN_DIFFERENCES]:
        out.print(f"  {_difference(difference)}", markup=False)
    if count > SHOWN_DIFFERENCES:
        more = count - SHOWN_DIFFERENCES
        out.print(f"  and {more:,} more (--json lists up to {len(differences):,})")
    out.print(f"  [dim]{document['scope']}[/dim]")


def _difference(parts: Mapping[str, Any]) -> str:
    """A difference in one line; values that are long, such as vectors, are cut."""
    name = " ".join(map(str, (parts["kind"], parts["element"], parts["type"], *parts["key"])))
    changes = ", ".join(
        f"{field} is {_cut(change['found'])}, should be {_cut(change['expected'])}"
        for field, change in parts["fields"].items()
    )
    return f"{name}: {changes}" if changes else name


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def show_difference_of(out: Console, document: Mapping[str, Any], first: str, second: str) -> None:
    """For a person: what two targets hold differently, by label and edge type, with examples."""
    for stage, entries in document["behind"].items():
        out.print(f"[yellow]{entries:,} entries are folded by {stage} in one of them alone[/]")
    if document["same"]:
        out.print(f"[green]✓ same[/green]  {document['compared']:,} nodes and edges")
        return
    heads = ("", f"only in {first}", f"only in {second}", "different", "")
    rows = [
        [
            each["type"],
            *(f"{each[name]:,}" for name in ("only_first", "only_second", "different")),
            ", ".join(f"{name} {count:,}" for name, count in each["properties"].items()),
        ]
        for each in document["types"]
    ]
    show_table(out, heads, rows, "", right=1)
    out.print()
    for each in document["examples"]:
        name = " ".join(map(str, (each["type"], *each["key"])))
        whose = {"missing": f"only in {first}", "extra": f"only in {second}"}.get(each["kind"])
        told = whose or "; ".join(
            f"{field} {_cut(values['expected'])} in {first}, {_cut(values['found'])} in {second}"
            for field, values in each["fields"].items()
        )
        out.print(f"  {name}: {told}", markup=False)


def line(fields: Mapping[str, Any]) -> str:
    """What is told of one thing, in one line."""
    return "  ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def moment(text: str | None, option: str) -> int | None:
    """The moment an option names, milliseconds since the epoch.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
