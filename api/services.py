"""What the routes of one app share, and what belongs to one read: its caller, question and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from api.access_log import AccessLog
from api.caches import ResultCache, ShownNodes
from api.connection_limits import EdgeLimits
from api.connections import WARM_WITHIN_S, Connections
from api.errors import ApiProblem
from api.preflight import ALONE, Share
from api.rate_limits import Limits, StreamSlots
from api.retrieval.intent import SeedRules
from api.retrieval.policy import policy_of
from api.seen import Seen
from consolidation.forgetting_payloads import FactKey
from enrichment.payloads import offered_event
from pipelines.columns.access import ColumnsAccess
from pipelines.columns.graph_scores import ActivationConfig
from pipelines.columns.reads import ColumnReads
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.ledger import Ledger
from pipelines.models.model_client import QueryEmbedder
from pipelines.observe import logs, metrics
from pipelines.work.settings import Role, Settings
from pipelines.work.stages import PROJECTION
from projections.errors import LedgerError, LedgerUnavailable, QueryTimeout
from projections.events import EVERYONE, Event, timestamp_ms
from projections.identity import START, Position
from projections.traces.drafts import ToldCalls

T = TypeVar("T")
Q = TypeVar("Q", bound="CountedRead")

GRACE_MS: Final = 3_000
"""Beyond a query's own limit, for a database that does not enforce it: it hangs, or the network
does. Neo4j looks for expired transactions every 2 s unless configured otherwise."""

QUERIES_AT_ONCE: Final = 6
"""More would wait for the interpreter, and make each other wait."""
CHANNEL_THREADS: Final = 48
"""For the parts of queries that run side by side; they wait for the database, mostly."""
_PAUSE_S: Final = 0.05
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.1

_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, by the name of the key, and the one tenant this request is about.

    Attributes:
        user_id: for whom the key reads and writes, whatever is asked; None: whom a request names.
        all_users: may ask over all users.
    """

    name: str
    role: Role
    tenant: str
    user_id: str | None = None
    all_users: bool = False

    def offered(self, raw: Any, now_ms: int) -> Event:
        """The event of an envelope that is sent: of the key's tenant and, if it has one, its user.

        Raises:
            InvalidEvent: with every broken rule, each by field.
        """
        return offered_event(raw, now_ms=now_ms, tenant=self.tenant, user_id=self.user_id)

    def view(self, user_id: str | None, now_ms: int, until: Position | None = None) -> Scope:
        """What a read sees: of the key's user, else of the one it names, else of nobody.

        A key that is bound to a user stands above what a request says: of other users it gets
        nothing, and to name one is refused rather than answered about somebody else.

        Args:
            user_id: the user that the request names, or EVERYONE; None: no one.
            now_ms: the clock.
            until: events and decisions behind this position are not seen.

        Raises:
            ApiProblem: the key does not allow it.
        """
        if self.user_id is not None:
            if user_id not in (None, self.user_id):
                raise ApiProblem(
                    "forbidden",
                    "This key is of another user than `user_id` names.",
                    errors=[("user_id", "the user of the key, or none")],
                )
            return Scope(self.tenant, self.user_id, now_ms, until)
        if user_id != EVERYONE:
            return Scope(self.tenant, user_id, now_ms, until)
        if self.role != "admin" and not self.all_users:
            raise ApiProblem(
                "forbidden",
                "To read over all users needs the role admin, or a key of all users.",
                errors=[("user_id", "`*` needs the role admin, or a key with all_users")],
            )
        metrics.OPERATOR_READS.inc()
        _log.info("read over all users", tenant=self.tenant, role=self.role)
        return Scope(self.tenant, None, now_ms, until, everyone=True)


class Services:
    """What the routes of one app share.

    Reads and appends have threads of their own: slow queries never keep events waiting.

    Attributes:
        is_cold: the first questions would take seconds; a process that serves is being warmed up.
        closed: set at the end.
    """

    def __init__(
        self, settings: Settings, connections: Connections, seen: Seen, share: Share = ALONE
    ) -> None:
        self.settings = settings
        self.connections = connections
        self.is_cold = False
        self.closed = threading.Event()
        self.seen = seen
        self.policy = policy_of(settings.model_dump())
        self.limits = Limits(settings, share.counts)
        self.embedder = QueryEmbedder(settings)
        self.channels = ThreadPoolExecutor(CHANNEL_THREADS, thread_name_prefix="channel")
        self.results = ResultCache(
            settings.result_cache_s, share.of(settings.result_cache_bytes), settings.partitions
        )
        self.shown = ShownNodes(
            connections.cache("shown"), lambda: seen.sample.ledger_error is None
        )
        self.accesses = AccessLog(
            self.ledger, lambda: seen.sample.overloaded(settings), self.shown.count_read
        )
        self.told_calls = ToldCalls()
        self._slots = StreamSlots(settings.max_streams, share.streams)
        self._most_streams = max(1, EdgeLimits.of(settings, share).connections // 2)
        self._read_threads = CapacityLimiter(32)
        self._query_threads = CapacityLimiter(QUERIES_AT_ONCE)
        self._append_threads = CapacityLimiter(16)

    def close(self) -> None:
        """End what runs beside requests; what still waits for a server is not waited for."""
        self.closed.set()
        self.accesses.stop()
        self.channels.shutdown(wait=False, cancel_futures=True)
        self.embedder.close()

    def wait_until_warm(self) -> None:
        """Return once the first questions would be answered as fast as all others.

        Or after a while: events are taken, whatever a process without its graph would answer.
        """
        deadline_s = time.monotonic() + WARM_WITHIN_S
        while self.is_cold and time.monotonic() < deadline_s and not self.closed.wait(_PAUSE_S):
            pass

    def ledger(self) -> Ledger:
        """The ledger, unless the last look found it away.

        A call to a Redis that is away goes on trying for seconds; when it is known to be, callers
        hear so at once and no thread waits.

        Raises:
            LedgerUnavailable: it was away a moment ago.
        """
        error = self.seen.sample.ledger_error
        if error is not None:
            raise LedgerUnavailable(reason=error)
        return self.connections.ledger

    def admit_stream(self, key: str) -> Callable[[], None]:
        """Count a stream; what is returned is called when it is over.

        Raises:
            ApiProblem: the key has as many as it may; or they would take the half of the
                connections that is for all others.
        """
        if len(self._slots) >= self._most_streams:
            raise ApiProblem("too-many-connections", "Half of the connections follow changes.")
        slot = self._slots.take(key)
        if slot is None:
            metrics.RATE_LIMITED.labels("streams").inc()
            most = self.settings.max_streams
            raise ApiProblem("rate-limited", f"At most {most:,} streams of changes at once.")
        metrics.API_STREAMS.set(len(self._slots))

        def give_back() -> None:
            self._slots.give_back(slot)
            metrics.API_STREAMS.set(len(self._slots))

        return give_back

    async def append(self, work: Callable[[], T]) -> T:
        """Run work that appends; it is never abandoned half-way."""
        return await anyio.to_thread.run_sync(work, limiter=self._append_threads)

    async def read(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run work that reads; given up when even the database's own limit did not end it.

        Raises:
            QueryTimeout: it was.
        """
        return await self._within(work, timeout_ms, self._read_threads)

    async def query(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """As `read`, for what computes as much as it reads: a few at once, the others wait.

        Raises:
            QueryTimeout: it was given up, or its turn did not come.
        """
        return await self._within(work, timeout_ms, self._query_threads)

    async def _within(self, work: Callable[[], T], timeout_ms: int, limiter: CapacityLimiter) -> T:
        result: list[T] = []
        with anyio.move_on_after((timeout_ms + GRACE_MS) / 1000):
            result.append(
                await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
            )
        if not result:
            raise QueryTimeout(timeout_ms=timeout_ms, reason="no answer in time")
        return result[0]


class Deadline:
    """A time limit that several steps share."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._began_s = time.monotonic()

    def elapsed_ms(self) -> int:
        """Milliseconds since it began."""
        return round((time.monotonic() - self._began_s) * 1000)

    def remaining_ms(self) -> int:
        """What is left, at least 1.

        Raises:
            QueryTimeout: nothing is.
        """
        left = self.timeout_ms - self.elapsed_ms()
        if left <= 0:
            raise QueryTimeout(timeout_ms=self.timeout_ms, reason="no time left")
        return left


@dataclass(frozen=True, slots=True)
class ReadContext(Generic[Q]):
    """One read of the graph: on which services, in whose memory, of what, within which time.

    Attributes:
        scope: what the caller sees, and the clock.
        query: the parameters or the body of the request.
        is_fresh: the columns were asked already, for what was committed before the request came.
        tells_withheld: how much is kept from the caller may be said. To a key that is bound to a
            user it would tell what others' memories hold.
    """

    services: Services
    scope: Scope
    query: Q
    deadline: Deadline
    tells_withheld: bool = True
    is_fresh: bool = False

    @property
    def tenant(self) -> str:
        """Whose memory."""
        return self.scope.tenant

    @property
    def now_ms(self) -> int:
        """The clock, for recency and for facts that hold."""
        return self.scope.now_ms

    def at(self, now_ms: int) -> ReadContext[Q]:
        """The same read by another clock."""
        return replace(self, scope=self.scope._replace(now_ms=now_ms))

    def in_session(self, session_id: str) -> ReadContext[Q]:
        """The same read, in the view of a session's user where it names no other; asks for them.

        Raises:
            QueryTimeout: there was no answer in time.
            GraphUnavailable: nobody holds the columns.
        """
        if self.scope.viewer is not None:
            return self
        with self.services.connections.graph.opened() as graph:
            reads = graph.columns.reads(self.scope, self.deadline.remaining_ms(), fresh=True)
            user_id = reads.session_user(session_id)
        return replace(self, scope=self.scope._replace(user_id=user_id), is_fresh=True)

    def withheld(self, count: Callable[[], int]) -> int | None:
        """How much was kept from the caller; None: who may not know.

        Args:
            count: asked only when somebody is told, and something can be kept.
        """
        if not self.tells_withheld:
            return None
        return 0 if self.scope.everyone else count()

    def withheld_beside(self, reader: GraphReader, count: Callable[[GraphRead], int]) -> int | None:
        """As `withheld`, of what lies beside an answer: nothing, if there is no time to count.

        Args:
            reader: of the graph that the answer is read from.
            count: asks the graph.
        """

        def counted() -> int:
            try:
                return self.read(reader, count)
            except QueryTimeout:
                return 0

        return self.withheld(counted)

    @property
    def settings(self) -> Settings:
        """Of the deployment."""
        return self.services.settings

    def columns(self, columns: ColumnsAccess, timeout_ms: int | None = None) -> ColumnReads:
        """The caller's questions to the columns, which know what was committed before the request.

        Args:
            columns: of the graph that is read from.
            timeout_ms: of all of them; None: what is left.

        Raises:
            QueryTimeout: no time is left.
        """
        limit_ms = self.deadline.remaining_ms() if timeout_ms is None else timeout_ms
        return columns.reads(self.scope, limit_ms, fresh=not self.is_fresh)

    def read(self, reader: GraphReader, work: Callable[[GraphRead], T]) -> T:
        """Ask the graph within the time that is left.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: Neo4j is away.
        """
        return reader.read(work, timeout_ms=self.deadline.remaining_ms())

    async def answer(self, work: Callable[[GraphRead], T]) -> T:
        """Ask the graph once, on a thread of its own, within the time that is left.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: Neo4j is away.
        """

        def on_thread() -> T:
            with self.services.connections.graph.reader() as reader:
                return self.read(reader, work)

        return await self.services.read(on_thread, timeout_ms=self.deadline.remaining_ms())

    def record(
        self,
        node_ids: Iterable[str],
        facts: Iterable[FactKey] = (),
        *,
        unasked: Container[str] = (),
    ) -> bool:
        """Count what is shown as read; whether it counts. Returns at once.

        Args:
            node_ids: wire ids of nodes.
            facts: keys of facts.
            unasked: those of the nodes that nobody asked for.
        """
        counts = counts_as_read(self.services, self.query)
        if counts:
            self.services.accesses.record(self.tenant, node_ids, facts, unasked=unasked)
        return counts

    def activation_config(self, max_hops: int) -> ActivationConfig:
        """Spreading activation as the settings say, with at most so many hops."""
        settings = self.settings
        return ActivationConfig(
            decay_lambda=settings.decay_lambda,
            max_hops=max_hops,
            activation_threshold=settings.activation_threshold,
            inhibition_threshold=settings.inhibition_threshold,
            max_activated_nodes=settings.max_activated_nodes,
            temporal_decay_rate=settings.temporal_decay_rate,
        )

    def seed_rules(self) -> SeedRules:
        """The selection of seeds as the settings say."""
        return SeedRules(self.settings.seed_structural_weight, self.settings.seed_community_cap)

    def cached(self, question: bytes, kind: type[T]) -> T | None:
        """What was answered a moment ago; None: nothing, or nobody knows whether it still stands.

        Args:
            question: everything that the answer depends on, the user and the page included.
            kind: of the answer.
        """
        services = self.services
        if not services.results.is_on:
            return None
        target = services.connections.graph.target
        name = None if target is None else target.name
        try:
            return services.results.get((self.tenant, question), kind, services.ledger(), name)
        except LedgerError:
            return None

    def cache(
        self,
        question: bytes,
        answer: object,
        *,
        size: Callable[[], int],
        sessions: Iterable[str | None],
        projected: Mapping[int, Position] | None,
    ) -> None:
        """Keep an answer, unless nobody knows what the graph held when it was made.

        Args:
            question: as for `cached`.
            answer: that nobody changes.
            size: of it as JSON, bytes; asked for only if it is kept.
            sessions: that it shows, and the one it was asked in; None: of no session.
            projected: by partition, how far the graph was before it was read.
        """
        services = self.services
        target = services.connections.graph.target
        if not services.results.is_on or projected is None or target is None:
            return
        services.results.put(
            (self.tenant, question),
            answer,
            size=size(),
            target=target.name,
            sessions={session for session in sessions if session is not None},
            projected=projected,
        )


_OTHER_TIMES: Final = ("as_of", "as_of_position", "at_timestamp")


def counts_as_read(services: Services, query: CountedRead) -> bool:
    """Whether what is shown counts as read: not if the caller or the deployment says so.

    What is asked as of another time never does.
    """
    past = any(getattr(query, name, None) is not None for name in _OTHER_TIMES)
    return query.record_access and services.settings.record_accesses and not past


def clock_ms(as_of: str | None) -> int:
    """The moment a read is about."""
    return time.time_ns() // 1_000_000 if as_of is None else timestamp_ms(as_of)


class CountedRead(Protocol):
    """Parameters that every read has.

    Attributes:
        record_access: count what is shown as read.
    """

    record_access: bool


class Timed(CountedRead, Protocol):
    """Parameters that every read from the graph has.

    Attributes:
        timeout_ms: of the whole read.
        min_position: of the newest event that the caller must see; None: whatever is there.
        user_id: in whose view, or EVERYONE; None: in that of the session's user, or of nobody.
    """

    timeout_ms: int
    min_position: str | None
    user_id: str | None


TQ = TypeVar("TQ", bound=Timed)


async def begin_read(
    services: Services,
    caller: Caller,
    query: TQ,
    *,
    session_id: str | None = None,
) -> ReadContext[TQ]:
    """A read, begun; returns when the graph has what the caller wants to see.

    Args:
        services: whose graph.
        caller: of the request.
        query: what is asked; `as_of` is the clock and `as_of_position` the position, where it has
            them.
        session_id: whose user's view it is when neither the key nor the query names one.

    Raises:
        ApiProblem: the key does not allow the view.
        QueryTimeout, LedgerUnavailable, GraphUnavailable: as `wait_until_projected`.
    """
    deadline = Deadline(query.timeout_ms)
    position = getattr(query, "as_of_position", None)
    until = None if position is None else Position.parse(position)
    scope = caller.view(query.user_id, clock_ms(getattr(query, "as_of", None)), until)
    if query.min_position is not None:
        await wait_until_projected(services, Position.parse(query.min_position), deadline)
    context = ReadContext(
        services, scope, query, deadline=deadline, tells_withheld=caller.user_id is None
    )
    if session_id is None or scope.viewer is not None:
        return context
    return await services.read(
        lambda: context.in_session(session_id), timeout_ms=deadline.remaining_ms()
    )


async def wait_until_projected(services: Services, position: Position, deadline: Deadline) -> None:
    """Return when the active target has the event at `position`; holds no thread meanwhile.

    Looks at the checkpoint of the event's partition alone. When no entry stands at the position
    (it was lost, or is that of no event), every partition must have passed it.

    Raises:
        QueryTimeout: it does not have it in time.
        LedgerUnavailable: Redis is away.
        GraphUnavailable: Neo4j is away.
    """
    ledger = services.ledger()
    partition = await services.read(
        lambda: _partition_of(ledger, position), timeout_ms=deadline.remaining_ms()
    )

    def projected() -> bool:
        # Tails first: what comes meanwhile lies behind the position that is waited for.
        tails = None if partition is not None else ledger.tails()
        with services.connections.graph.reader() as reader:
            checkpoints = reader.read(
                lambda graph: graph.checkpoints(PROJECTION.name), timeout_ms=deadline.remaining_ms()
            )
            reached = {item.partition: item.position for item in checkpoints}
            if tails is None:
                concerned = [] if partition is None else [partition]
                passed = any(reached.get(one, START) >= position for one in concerned)
            else:
                concerned = list(reached)
                passed = have_passed(reached, [tail.position for tail in tails], position)
            if passed:
                reader.settle(PROJECTION.name, concerned, timeout_ms=deadline.remaining_ms())
        return passed

    pause_s = _FIRST_PAUSE_S
    while not await services.read(projected, timeout_ms=deadline.remaining_ms()):
        if deadline.remaining_ms() / 1000 <= pause_s:
            raise QueryTimeout(timeout_ms=deadline.timeout_ms, reason="not projected yet")
        await anyio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


def _partition_of(ledger: Ledger, position: Position) -> int | None:
    """Which partition has the entry; positions are unique over all of them."""
    for partition in range(ledger.partitions):
        if ledger.entry_at(partition, position) is not None:
            return partition
    return None


def have_passed(
    reached: Mapping[int, Position], tails: Sequence[Position], position: Position
) -> bool:
    """Whether everything up to `position`, of all partitions, is projected.

    A position behind the last entry of the ledger has not been given out: nothing has passed it.

    Args:
        reached: partition → position of its checkpoint.
        tails: position of each partition's last entry.
        position: waited for.
    """
    return max(tails, default=START) >= position and all(
        reached.get(partition, START) >= min(tail, position) for partition, tail in enumerate(tails)
    )
