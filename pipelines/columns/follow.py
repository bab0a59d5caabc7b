"""Columns that follow a graph: everything at first, then what each transaction changed.

The graph tells which keys a transaction touched (`pipelines.graph.feed`); what they hold now is
read again. So a change that is taken in twice, or late, does no harm.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from pipelines.columns.contents import compared
from pipelines.columns.copy import Copy
from pipelines.columns.loading import Readings, columns_from, edges_of, nodes_of, readings_of
from pipelines.columns.pending import Pending
from pipelines.columns.records import Finding
from pipelines.columns.tenant import Tenant
from pipelines.columns.view import View
from pipelines.graph.port import Graph
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import Change, FeedPlace
from projections.errors import ChangesLost
from projections.operations import Checkpoint

CHANGES: Final = 20
"""Taken in at once: a question waits no longer than for so many."""
ITEMS_BESIDE: Final = 500
"""Of the graph, that are read anew before what is held is brought up to it again."""
_COMPARISONS: Final = 3
_VIEWS: Final = 4
"""That are kept: of so many queries at once, 3 bytes an event each."""

Item = TypeVar("Item")


class Columns:
    """The columns of every tenant of one graph, as far as they have been read.

    One thread loads them and catches up; any may ask them, with the lock.

    Args:
        graph: that is followed.
        copy: the file where what was read is kept for the next start; None: nowhere. One process
            at a time has it; another one works without.

    Attributes:
        place: of the graph's feed, up to which they hold everything; None: nothing was loaded.
        tenants: by name.
        pending: events that the graph does not have yet; whoever reads the ledger puts them in.
        loads: how often they were loaded.
        is_empty: nothing was loaded, for no worker has begun the graph, and nothing is in it.
        lock: held while they are changed, and for each question.
        tail_lock: held, before the lock, by who puts in what the ledger has, and while they are
            compared.
    """

    def __init__(self, graph: Graph, copy: Path | None = None) -> None:
        self._graph = graph
        self._copy = Copy(copy)
        self.place: FeedPlace | None = None
        self.tenants: dict[str, Tenant] = {}
        self.pending = Pending()
        self.loads = 0
        self.is_empty = False
        self.lock = threading.Lock()
        self._views: deque[View] = deque(maxlen=_VIEWS)
        self.tail_lock = threading.Lock()
        self._taken: Callable[[Sequence[Change], Readings], None] | None = None
        """Told of all that is taken in, while the graph is read anew beside."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The lock, for whoever changes anything: nobody sees what was seen before."""
        with self.lock:
            self._views.clear()
            yield

    def view(self, scope: Scope) -> View:
        """What a viewer sees; whoever calls holds the lock while they use it.

        A query asks a dozen questions in one scope, and who may see what is the same for all.
        """
        for view in self._views:
            if view.scope == scope:
                return view
        view = View(self.tenant(scope.tenant), scope)
        self._views.append(view)
        return view

    @property
    def is_loaded(self) -> bool:
        """Whether they hold what the graph does, which may be nothing."""
        return self.place is not None or self.is_empty

    def tenant(self, name: str) -> Tenant:
        """The columns of a tenant; empty ones of one that the graph does not know."""
        return self.tenants.get(name) or Tenant()

    def load(self) -> None:
        """Take in everything that the graph holds: of the copy, if the feed leads on from there.

        Raises:
            GraphUnavailable: it is away; what there was stays as it is.
            ChangesLost: it has no feed, as one that no worker of this version has started on; or
                it is being emptied.
        """
        if self.place is None:
            self._load_copy()
        if self.place is None:
            try:
                self._load_graph()
            except ChangesLost:
                self.is_empty = not any(self._graph.counts().nodes.values())
                raise
            self.is_empty = False
        else:
            self.catch_up()

    def catch_up(self, most: int = CHANGES) -> None:
        """Take in everything that was committed before; what comes meanwhile may wait.

        Args:
            most: changes at once.

        Raises:
            GraphUnavailable: the graph is away.
            ChangesLost: it has no feed, or is being emptied.
        """
        if self.place is None:
            self.load()
        while self._follow(most):
            pass

    def verify(self, *, mend: bool = False, meanwhile: Callable[[], None] | None = None) -> Finding:
        """Read the graph anew, and compare what is held with it, item by item.

        Writers may go on. It takes the memory of all columns once more, and of the thread that
        catches up; questions may be asked.

        Args:
            mend: put the new columns of a tenant in the place of those that differ, and make the
                copy anew.
            meanwhile: called now and then while the graph is read: has `catch_up` called; None:
                that alone.

        Raises:
            GraphUnavailable: the graph is away; nothing was mended.
            ChangesLost: it has no feed, or is being emptied again and again.
        """
        if self.place is None:
            self.load()
        for _ in range(_COMPARISONS):
            loads = self.loads
            anew = self._read_beside(meanwhile or self.catch_up)
            if loads == self.loads:
                with self.tail_lock:
                    self.pending.repeat(anew)
                    finding = compared(anew, self.tenants)
                    if mend and finding.difference_count:
                        self._replace(anew, finding.counts)
                return finding
        raise ChangesLost(reason="the graph was made anew whenever it was compared")

    def _read_beside(self, meanwhile: Callable[[], None]) -> dict[str, Tenant]:
        """New columns, that know of as much as those that are held.

        What either read before its time, in the midst of being written, was changed by then, and
        is told. So when both have taken in the same readings of all that was told from the
        beginning on, either holds what the graph held then, or what those readings said.
        """
        told: list[Change] = []
        self._taken = lambda changes, _: told.extend(changes)
        try:
            anew = columns_from(
                _with_pauses(nodes_of(self._graph), meanwhile),
                _with_pauses(edges_of(self._graph), meanwhile),
            )
            for first in range(0, len(told), CHANGES):
                readings = readings_of(self._graph, told[first : first + CHANGES])
                readings.set_in(anew)
                with self.changing():
                    readings.set_in(self.tenants)
            self._taken = lambda _, readings: readings.set_in(anew)
            self.catch_up()
        finally:
            self._taken = None
        return anew

    def _replace(self, anew: dict[str, Tenant], names: Iterable[str]) -> None:
        with self.changing():
            for name in names:
                self.tenants[name] = anew.get(name) or Tenant()
        if self._copy.is_kept and self.place is not None:
            with self._copy.anew(self.place) as copy:
                for _ in copy.keep_nodes(nodes_of(self._graph)):
                    pass
                for _ in copy.keep_edges(edges_of(self._graph)):
                    pass

    def close(self) -> None:
        """Close the copy."""
        self._copy.close()

    def _load_copy(self) -> None:
        place = self._copy.place()
        if place is None or not self._leads_on(place):
            return
        tenants = self._copy.read()
        if tenants is not None:
            self._begin(tenants, place, self._graph.checkpoints())

    def _leads_on(self, place: FeedPlace) -> bool:
        """Whether the feed tells all that has changed since."""
        try:
            self._graph.changes(place, 1)
        except ChangesLost:
            return False
        return True

    def _load_graph(self) -> None:
        place = self._graph.feed()
        checkpoints = self._graph.checkpoints()
        with self._copy.anew(place) as copy:
            nodes, edges = nodes_of(self._graph), edges_of(self._graph)
            tenants = columns_from(copy.keep_nodes(nodes), copy.keep_edges(edges))
        self._begin(tenants, place, checkpoints)

    def _begin(
        self, tenants: dict[str, Tenant], place: FeedPlace, checkpoints: Sequence[Checkpoint]
    ) -> None:
        with self.changing():
            self.tenants, self.place = tenants, place
            self.pending.restart(tenants, checkpoints)
            self.loads += 1

    def _follow(self, most: int) -> bool:
        """Take in some changes, or everything if the feed does not lead on; whether more wait."""
        if self.place is None:
            raise AssertionError("unreachable: it was loaded")
        try:
            told = self._graph.changes(self.place, most)
        except ChangesLost:
            self._load_graph()
            return False
        if any(change.everything for change in told.changes):
            self._load_graph()
            return False
        if told.changes:
            self._take(told.changes, told.place)
        return told.more

    def _take(self, changes: Sequence[Change], place: FeedPlace) -> None:
        """Read what changes name, then set it at once."""
        readings = readings_of(self._graph, changes)
        with self.changing():
            self.pending.filled(readings).set_in(self.tenants)
            self.pending.settle(
                self.tenants, readings, [to for change in changes for to in change.advanced]
            )
            self.place = place
        self._copy.keep(readings, place)
        if self._taken is not None:
            self._taken(changes, readings)


def _with_pauses(items: Iterable[Item], pause: Callable[[], None]) -> Iterator[Item]:
    """The items, with a pause before so many each, and behind the last."""
    for number, item in enumerate(items):
        if number % ITEMS_BESIDE == 0:
            pause()
        yield item
    pause()
