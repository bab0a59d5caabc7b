"""The forms of an export, and how one gets into a file: whole, or not at all."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from pipelines.ledger.command_notes import Progress
from pipelines.local.private_files import written_whole
from pipelines.operations.export.events import (
    ExportReport,
    Format,
    Selection,
    event_lines,
    event_table,
    transcript,
)
from pipelines.operations.export.graph import graphml, prov_json
from pipelines.work.services import Services
from projections.errors import InvalidInput, OperationFailed

STANDARD_OUTPUT: Final = Path("-")


class Form(NamedTuple):
    """A form of an export.

    Attributes:
        meaning: for people.
        selects: which fields of a selection it heeds.
        needs: which of them it cannot do without; of several together, one.
        chunks: makes the bytes.
    """

    meaning: str
    selects: tuple[str, ...]
    needs: tuple[str | tuple[str, ...], ...]
    chunks: Callable[[Services, Selection, ExportReport, Progress], Iterable[bytes]]


def _of_graph(
    write: Callable[..., Iterable[bytes]],
) -> Callable[[Services, Selection, ExportReport, Progress], Iterable[bytes]]:
    """A form that is made of the active target's graph."""

    def chunks(
        services: Services, selection: Selection, report: ExportReport, progress: Progress
    ) -> Iterator[bytes]:
        graph = services.graph(services.active())
        before = graph.checkpoints()
        for stage in sorted({one.stage for one in before}):
            graph.settle(stage, (one.partition for one in before if one.stage == stage))
        yield from write(graph, selection.tenant, report, progress)
        if graph.checkpoints() != before:
            report.notes.append("the graph changed meanwhile: an edge may lack one of its nodes")

    return chunks


_OF_EVENTS: Final = ("tenant", "session_id", "user_id", "since_ms", "until_ms")

FORMS: Final[Mapping[Format, Form]] = {
    Format.EVENTS: Form(
        "JSON lines, one event each, in the order of the ledger; `recollect import` reads them",
        _OF_EVENTS,
        (),
        lambda services, *wanted: event_lines(services.ledger, *wanted),
    ),
    Format.PARQUET: Form(
        "events as a table",
        _OF_EVENTS,
        (),
        lambda services, *wanted: event_table(services.ledger, *wanted),
    ),
    Format.GRAPHML: Form("the graph as GraphML", ("tenant",), (), _of_graph(graphml)),
    Format.PROV: Form("the graph as PROV-JSON", ("tenant",), (), _of_graph(prov_json)),
    Format.MARKDOWN: Form(
        "a session, or what is of a user, as Markdown for people",
        _OF_EVENTS,
        ("tenant", ("session_id", "user_id")),
        lambda services, *wanted: transcript(services.ledger, *wanted),
    ),
}


def export(
    services: Services,
    form: Format,
    selection: Selection,
    file: Path,
    *,
    progress: Progress = lambda done, total, what: None,
) -> ExportReport:
    """Write a part of the memory to a file, or to standard output.

    Args:
        services: ledger and targets.
        form: a key of FORMS.
        selection: what of it.
        file: `-` is standard output; packed where its name ends in `.gz`. It appears when all of
            it is on the disk, readable by its user alone; one that was there stays until then.
        progress: called with done, total and what is being done.

    Raises:
        InvalidInput: the selection is none that this form knows, or lacks what it needs.
        OperationFailed: the file cannot be written, or there is no such session.
        LedgerUnavailable, GraphUnavailable: a service is away.
    """
    row = FORMS[form]
    _refuse_selection(form, row, selection)
    report, begun = ExportReport(), time.monotonic()
    try:
        with _opened(file) as out:
            for chunk in row.chunks(services, selection, report, progress):
                out.write(chunk)
                report.size += len(chunk)
    except OSError as error:
        where = "standard output" if file == STANDARD_OUTPUT else str(file)
        raise OperationFailed(
            reason=f"{where}: {error.strerror or error}; "
            + ("what came out is not all" if file == STANDARD_OUTPUT else "nothing was written")
        ) from error
    report.seconds = time.monotonic() - begun
    return report


def _refuse_selection(form: Format, row: Form, selection: Selection) -> None:
    errors = [
        (_option(name), f"not with --format {form}")
        for name, value in selection._asdict().items()
        if value is not None and name not in row.selects
    ]
    for need in row.needs:
        names = (need,) if isinstance(need, str) else need
        if all(getattr(selection, name) is None for name in names):
            option = " or ".join(map(_option, names))
            errors.append((option, f"required with --format {form}"))
    if errors:
        raise InvalidInput(tuple(errors))


def _option(name: str) -> str:
    return "--" + name.removesuffix("_ms").removesuffix("_id")


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    if file == STANDARD_OUTPUT:
        out = open(1, "wb", closefd=False)  # noqa: SIM115 - a close would raise once more
        try:
            yield out
            out.flush()
        finally:
            with suppress(OSError):
                out.close()
        return
    file = file.resolve()
    if file.exists() and not file.is_file():
        raise OSError(0, "not a regular file (- is standard output)")
    with written_whole(file, is_large=True) as plain:
        if file.suffix != ".gz":
            yield plain
            return
        # without the time, so that the same events give the same file
        with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed:
            yield cast(IO[bytes], packed)


def document(report: ExportReport, form: Format, file: Path) -> dict[str, Any]:
    """For a machine."""
    return {"format": form, "file": str(file), **report.as_dict()}
