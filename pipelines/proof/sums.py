"""Order-free digests, and the ledger's side of the fast look: its numbers, added up by bucket.

Each canonical node and edge gives a 256-bit number, and the digest is their sum modulo 2^256: it
can be built in any order, in parts, by several processes, and a part can be taken away again.
Equal digests mean equal graphs up to a collision of BLAKE2b.

Reading and hashing the ledger is as much work as half of the graph's side, and Python uses one
core a process. So for a large ledger a child does it meanwhile: it connects by itself, sends how
far it is, and at last its sums. They are the same wherever they are made. A child that fails is
no error: the work is then done here, and what was wrong shows here, if it still is.

`StoredSums` are over everything that a store holds, by label and type, whichever store it is: there
vectors, positions and bookkeeping count, too, since they are about what one store must have taken
over from another.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy
import orjson

from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import BesideRedis, Ledger
from pipelines.local.python_process import ChildTask, take
from projections.errors import RecollectError, UndecodableEntry
from projections.events import is_system_event
from projections.identity import Position, SessionKey
from projections.schema import DEAD_LETTER, EDGES, EVENT, NODES, Certainty, EdgeRow, NodeRow
from projections.structural import direct_cause, event_node, stage_values

if TYPE_CHECKING:
    from types import TracebackType

    from pipelines.work.services import Progress
    from pipelines.work.settings import Settings

Group = int | SessionKey
"""What is added up together: a bucket of sessions; of a sample, a session."""
BUCKETS = 4_096
CHILD_FROM_ENTRIES = 20_000
"""A child's start costs as much as reading some 20,000 entries."""
READING = "reading the ledger"
_POLL_S = 0.2
_ITEMS_A_STEP = 5_000
"""Of progress."""


@dataclass(frozen=True)
class Draw:
    """Sessions drawn at random, the same in every process.

    Attributes:
        share: of all sessions, above 0 up to 1.
        salt: with another one others are drawn.
    """

    share: float
    salt: int

    def has(self, session: SessionKey) -> bool:
        """Whether a session is drawn."""
        return _checksum(session, self.salt) < self.share * (1 << 32)


@dataclass(frozen=True)
class Task:
    """What to add up.

    Attributes:
        until: by partition the position of the checkpoint, up to and including which is read.
        entries: how many those are.
        dead: by partition the numbers of entries that dead letters stand for.
        tombstones: keys of forgotten events.
        draw: the sessions that are added up, each by itself; None: all, in buckets.
    """

    until: Mapping[int, Position]
    entries: int
    dead: Mapping[int, Set[int]]
    tombstones: Set[tuple[str, str]]
    draw: Draw | None = None

    def group(self, session: SessionKey) -> Group | None:
        """What a session's numbers are added to; None: it is not drawn."""
        if self.draw is None:
            return _checksum(session, 0) % BUCKETS
        return session if self.draw.has(session) else None


@dataclass
class LedgerSums:
    """What the ledger supports.

    Attributes:
        numbers: sums.
        events: how many were added up, or are forgotten; without system events.
        unreadable: partition and seq of entries that are no events.
    """

    numbers: Counter[Group] = field(default_factory=Counter)
    events: int = 0
    system_events: int = 0
    unreadable: list[tuple[int, int]] = field(default_factory=list)

    def sessions(self) -> list[SessionKey]:
        """Those that were drawn, in order."""
        return sorted(group for group in self.numbers if not isinstance(group, int))


def _checksum(session: SessionKey, salt: int) -> int:
    # Text of whatever stands there: a graph that was tampered with holds any type.
    tenant, session_id = session
    return crc32(f"{tenant}\x1f{session_id}".encode("utf-8", "replace"), salt)


def add_up(ledger: Ledger, task: Task, progress: Progress) -> LedgerSums:
    """Read the ledger up to the checkpoints, with bounded memory. Raises as `Ledger.read` does."""
    sums = LedgerSums()
    numbers, tombstones = sums.numbers, task.tombstones
    label = EVENT.label
    done = 0
    for partition in range(ledger.partitions):
        dead = task.dead.get(partition, frozenset())
        for entries in ledger.scan(partition, until=task.until[partition]):
            for entry in entries:
                if entry.seq in dead:
                    continue
                try:
                    event = entry.event()
                except UndecodableEntry:
                    sums.unreadable.append((partition, entry.seq))
                    continue
                if is_system_event(event.event_type):
                    sums.system_events += 1
                    continue
                group = task.group((event.tenant, event.session_id))
                if group is None:
                    continue
                sums.events += 1
                if event.key in tombstones:
                    continue
                values = stage_values(event_node(event, entry.position))
                node = element_digest(label, *event.key, *values[:POSITION])
                number = placed(node, values[POSITION])
                cause = direct_cause(event)
                if cause is not None:
                    number += edge_number(
                        cause.type, cause.source, cause.target, stage_values(cause)
                    )
                numbers[group] += number
            done += len(entries)
            progress(done, task.entries, READING)
    return sums


class LedgerSide:
    """Adds up the ledger's side: in a child when that pays, else when the sums are asked for.

    A context manager; its end is the child's end. A child that this process cannot end any more,
    because it was killed, ends by itself: its standard input closes.

    Args:
        ledger: what is read here.
        task: what to add up.
        progress: called with done, total and what is being done.
        settings: what a child connects to; None: no child.
    """

    def __init__(
        self, ledger: Ledger, task: Task, progress: Progress, settings: Settings | None
    ) -> None:
        self._ledger = ledger
        self._task = task
        self._progress = progress
        self._settings = settings if task.entries >= CHILD_FROM_ENTRIES else None
        self._child: ChildTask | None = None
        self._listener: threading.Thread | None = None
        self._done = 0
        self._sums: LedgerSums | None = None

    def __enter__(self) -> LedgerSide:
        if self._settings is not None:
            try:
                self._child = ChildTask(__name__, (self._settings, self._task))
            except OSError as error:
                self._fall_back(str(error))
            else:
                self._listener = threading.Thread(target=self._listen, name="sums", daemon=True)
                self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.end()

    @property
    def apart(self) -> bool:
        """Whether a child adds up, so that this process can do something else meanwhile."""
        return self._listener is not None

    def sums(self) -> LedgerSums:
        """The sums, once they are there. Raises as `Ledger.read` does."""
        if self._listener is not None:
            while self._listener.is_alive():
                self._listener.join(_POLL_S)
                if self._listener.is_alive():
                    self._progress(self._done, self._task.entries, READING)
            if self._sums is not None:
                return self._sums
            self._fall_back("it ended without a result")
        return add_up(self._ledger, self._task, self._progress)

    def _listen(self) -> None:
        """Take what the child sends, so that it never waits for this process."""
        assert self._child is not None
        for message in self._child.messages():
            if isinstance(message, LedgerSums):
                self._sums = message
            else:
                self._done = message

    def _fall_back(self, reason: str) -> None:
        import structlog  # a tenth of a second that a child's start does not need

        structlog.get_logger(__name__).warning("the ledger is read in this process", reason=reason)


def main() -> None:
    """The child: a task from standard input, progress and sums to standard output."""
    (settings, task), send = take()
    client = connect_redis(settings)
    try:
        ledger = Ledger(
            client,
            prefix=settings.prefix,
            partitions=settings.partitions,
            id_buckets=settings.id_buckets,
            checkpoints=dict,  # asked before an append only
            beside=BesideRedis.of(settings, client),
        )
        send(add_up(ledger, task, lambda done, total, what: send(done)))
    except RecollectError as error:
        sys.exit(str(error))  # a line is enough: the parent meets the same, if it is still there
    finally:
        client.close()


MODULUS = 1 << 256
_EXACT = (Certainty.FOLDED, Certainty.RECORDED)

_PROPERTIES = EVENT.owned("projection")
NAMES = [p.name for p in _PROPERTIES]
"""Properties of an Event that Stage 1 writes, in the order in which values stand."""
POSITION = len(NAMES) - 1
"""Place of the one that no digest covers."""
if _PROPERTIES[POSITION].certainty is not Certainty.POSITION:
    raise AssertionError("the position stands last in the row, so that a digest can leave it out")


def element_digest(label_or_type: str, *values: Any) -> int:
    """Number of one node or edge.

    Taken over its label or type, its keys and its folded properties in the order of the schema,
    as JSON. Times are milliseconds, real numbers are integers (times 10,000).
    """
    if float in map(type, values):  # never a value of ours; JSON would make null of NaN
        values = tuple(repr(value) if type(value) is float else value for value in values)
    data = orjson.dumps([label_or_type, *values], default=repr)
    return int.from_bytes(blake2b(data, digest_size=32).digest(), "big")


def edge_number(
    type_: str, source: Sequence[Any], target: Sequence[Any], values: Sequence[Any]
) -> int:
    """Digest of one edge."""
    return element_digest(type_, *source, *target, *values)


def digested(row: NodeRow | EdgeRow, stage: str) -> tuple[str, ...]:
    """Names of what a digest covers of a row: exact values that a stage writes, in their order.

    Bookkeeping is left out, and so is where things stand in the ledger.
    """
    name = row.label if isinstance(row, NodeRow) else row.type
    return _digested(name, stage)


@cache
def _digested(name: str, stage: str) -> tuple[str, ...]:
    if name in NODES:
        properties = () if NODES[name].operational else NODES[name].properties
        return tuple(p.name for p in properties if p.stage == stage and p.certainty in _EXACT)
    row = EDGES[name]
    if row.certainty is Certainty.APPROXIMATE:
        return ()
    return tuple(p.name for p in row.carried(stage) if p.certainty in _EXACT)


def node_number(row: NodeRow, stage: str, key: Sequence[Any], values: Mapping[str, Any]) -> int:
    """Digest of what a stage has written of a node; 0 where that is nothing."""
    written = [values.get(name) for name in digested(row, stage)]
    if row.stage != stage and not any(value is not None for value in written):
        return 0
    return element_digest(row.label, *key, *written)


def edge_number_of(
    row: EdgeRow,
    stage: str,
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    values: Mapping[str, Any],
) -> int:
    """Digest of an edge that a stage has made; 0 of another's, and of an approximate one."""
    if row.certainty is Certainty.APPROXIMATE:
        return 0
    if row.shared_by is not None and values.get(row.shared_by[0]) != row.shared_by[1][stage]:
        return 0
    written = [values.get(name) for name in digested(row, stage)]
    return edge_number(row.type, source, target, written)


def placed(number: int, position: Any) -> int:
    """Number of a node at its place in the ledger, to compare ledger and graph; in no digest.

    A product, because a sum would be the same after two nodes changed places. Of the text itself:
    the same in every process, unlike `hash`, and different for a number that is written otherwise.
    """
    text = position if type(position) is str else f"~{position!r}"
    return number * int.from_bytes(b"\x01" + text.encode("utf-8", "replace"), "big")


def digest_text(digest: int) -> str:
    """64 hexadecimal digits."""
    return f"{digest % MODULUS:064x}"


class StoredSums:
    """Adds up nodes and edges, of checkpoints apart.

    Args:
        stages: of which the digests are added up, too.
        by_tenant: whether sums are by tenant, not by label and type.

    Attributes:
        sums: of all that is stored; what has no text for a tenant is None's.
        counts: of nodes and edges, by label and type.
        events: that are more than the cause of another, by what their sums are by.
        digests: of what each stage wrote, by its name.
    """

    def __init__(self, stages: tuple[str, ...] = (), *, by_tenant: bool = False) -> None:
        self.sums: Counter[str | None] = Counter()
        self.counts: Counter[str] = Counter()
        self.events: Counter[str | None] = Counter()
        self.digests: Counter[str] = Counter(dict.fromkeys(stages, 0))
        self._stages = stages
        self.by_tenant = by_tenant

    def add(self, name: str, item: FoundNode | FoundEdge) -> None:
        """Take in a node or an edge; what it has not may be missing or None."""
        held, number = item.values, 0
        part = _tenant_of(name, item) if self.by_tenant else name
        values = [_exactly(held.get(one)) for one in _names(name)]
        if isinstance(item, FoundNode):
            node, vector = NODES[name], NODES[name].vector
            if vector is not None:
                values.append(_numbers(held.get(vector)))
            number = element_digest(name, *item.key, item.visible, *values)
            for stage in _written(name, self._stages) if item.visible else ():
                self.digests[stage] += node_number(node, stage, item.key, held)
            if node is EVENT and item.visible:
                self.events[part] += 1
        else:
            edge = EDGES[name]
            number = element_digest(name, item.source, item.target, item.label, *values)
            for stage in _written(name, self._stages):
                self.digests[stage] += edge_number_of(
                    edge, stage, item.source, item.target, values=held
                )
        self.sums[part] = (self.sums[part] + number) % MODULUS
        self.counts[name] += 1

    def add_all(
        self,
        items: Iterable[tuple[str, FoundNode | FoundEdge]],
        *,
        total: int,
        progress: Progress,
        what: str,
    ) -> None:
        """Take in all that a store holds, and tell how far that is, of so many items."""
        for done, (name, item) in enumerate(items):
            self.add(name, item)
            if done % _ITEMS_A_STEP == 0:
                progress(min(done, total), total, what)

    def update(self, other: StoredSums) -> None:
        """Take in what was added up elsewhere, of the same kind."""
        for mine, theirs in (
            (self.counts, other.counts),
            (self.events, other.events),
            (self.digests, other.digests),
        ):
            cast(Counter[str | None], mine).update(theirs)
        for part, number in other.sums.items():
            self.sums[part] = (self.sums[part] + number) % MODULUS

    def differing(self, other: StoredSums) -> set[str | None]:
        """Of what the sums are not the same."""
        return {part for part in self.sums | other.sums if self.sums[part] != other.sums[part]}


def _tenant_of(name: str, item: FoundNode | FoundEdge) -> str | None:
    """Whose a node is, or where an edge begins; None: that is no text, or nobody's."""
    if isinstance(item, FoundEdge):
        tenant = item.source[0]
    elif name == DEAD_LETTER.label:
        tenant = item.values.get("tenant")
    else:
        tenant = item.key[0]
    return tenant if type(tenant) is str else None


def _exactly(value: Any) -> Any:
    """A real number unlike the text that says the same; in a dictionary, which no property is."""
    return {"": repr(value)} if type(value) is float else value


@cache
def _names(name: str) -> tuple[str, ...]:
    """All properties of a label or type but for the key and the vector of an index."""
    if name in EDGES:
        return tuple(p.name for p in EDGES[name].properties)
    row = NODES[name]
    return tuple(p.name for p in row.stored() if p.name not in (*row.key, row.vector))


@cache
def _written(name: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """The stages whose digests cover something of a label or type."""
    if name in EDGES:
        return tuple(stage for stage in stages if EDGES[name].written_by(stage))
    return tuple(stage for stage in stages if digested(NODES[name], stage))


def _numbers(vector: Any) -> Any:
    """A vector by its bytes, an array or a tuple alike; anything else as it is.

    In a dictionary, which no property is.
    """
    if isinstance(vector, numpy.ndarray):
        data = vector.astype("<f8").tobytes()
    elif isinstance(vector, tuple) and type(vector[0]) is float:  # a list has one type in Neo4j
        data = array("d", vector).tobytes()
    else:
        return vector
    return {"": blake2b(data, digest_size=32).hexdigest()}
