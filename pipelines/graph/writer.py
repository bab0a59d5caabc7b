"""The write side of a target: transactions that fold, fenced by the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import neo4j

from pipelines.graph import cypher
from pipelines.graph.driver_errors import driver_errors
from pipelines.graph.log_safe import unprinted
from projections.errors import Fenced
from projections.events import Event
from projections.operations import Checkpoint, Operations
from projections.positions import START, Position
from projections.schema import fulltext_statements, schema_statements, vector_statements
from projections.structural import Facts, Link, Neighbours, SessionKey, Wanted, neighbours_in

_FEW = 4
"""Late events of a session in a batch from which on their stretch of the chain is read whole."""
_WIDE = 8
"""How many times more events than late ones a stretch may hold."""


def searches_within_tenants(session: neo4j.Session) -> bool:
    """Whether the server's vector index can be searched within a tenant (Neo4j 2026, not 5.26)."""
    version = session.run(cypher.SERVER_VERSION).single(strict=True)["version"]
    return not str(version).startswith("5.")


class GraphWriter:
    """Writes to one target. Threads may share it; each transaction has its own connection."""

    def __init__(
        self, driver: neo4j.Driver, database: str = "neo4j", *, timeout_s: float = 60.0
    ) -> None:
        self.driver = driver
        self.database = database
        self.timeout_s = timeout_s

    def ensure_schema(self) -> None:
        """Create what is missing of constraints and indexes, and wait until they are online."""
        with driver_errors(), self.driver.session(database=self.database) as session:
            for text in (
                *schema_statements(),
                *vector_statements(filtered=searches_within_tenants(session)),
                *fulltext_statements(),
            ):
                session.run(text).consume()
            session.run("CALL db.awaitIndexes($seconds)", seconds=300).consume()

    def ensure_checkpoints(
        self, stage: str, partitions: int, fold_version: int, models: str = ""
    ) -> None:
        """Create a stage's missing checkpoints at the start of the ledger."""
        with driver_errors(), self.driver.session(database=self.database) as session:
            session.run(
                cypher.CREATE_CHECKPOINTS,
                partitions=list(range(partitions)),
                stage=stage,
                position=str(START),
                fold_version=fold_version,
                models=models,
            ).consume()

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """The checkpoints of a stage, or of all, by stage and partition."""
        with driver_errors(), self.driver.session(database=self.database) as session:
            return [
                _checkpoint(record) for record in session.run(cypher.READ_CHECKPOINTS, stage=stage)
            ]

    def clear(self) -> None:
        """Delete everything Recollect wrote to this graph, in small transactions."""
        with driver_errors(), self.driver.session(database=self.database) as session:
            session.run(cypher.CLEAR).consume()

    def clear_memory(self) -> None:
        """Delete all of it but the checkpoints, in small transactions."""
        with driver_errors(), self.driver.session(database=self.database) as session:
            session.run(cypher.CLEAR_MEMORY).consume()

    @contextmanager
    def transaction(self) -> Iterator[GraphTransaction]:
        """One transaction: committed when the body ends, rolled back when it raises."""
        with (
            driver_errors(),
            self.driver.session(database=self.database) as session,
            session.begin_transaction(timeout=self.timeout_s) as transaction,
        ):
            yield GraphTransaction(transaction)
            transaction.commit()


class GraphTransaction:
    """What may happen between begin and commit. Take the checkpoint's lock first."""

    def __init__(self, transaction: neo4j.Transaction) -> None:
        self._transaction = transaction
        self._tombstones = 0
        self.dead_letters = 0
        """How many dead letters the graph holds, known after the lock."""
        self.advanced = False
        """Whether this transaction moves a checkpoint: then its entries are folded for the first
        time, and what only counts up may count."""

    @property
    def has_tombstones(self) -> bool:
        """Whether events were forgotten, known after the lock."""
        return self._tombstones > 0

    def _run(self, text: str, parameters: Any = None, **named: Any) -> neo4j.Result:
        return self._transaction.run(
            cypher.planned_once(text), unprinted({**(parameters or {}), **named})
        )

    def ask(
        self, text: str, parameters: Mapping[str, Any], *, version: int | None = None
    ) -> list[neo4j.Record]:
        """The rows of a stage's own question; `version` of Cypher, where it needs one."""
        begun = cypher.planned_once(text, version=version)
        return list(self._transaction.run(begun, unprinted(parameters)))

    def advance(self, start: Checkpoint, to: Checkpoint) -> None:
        """Lock the checkpoint, test that it is at `start`, and move it to `to`.

        Raises:
            Fenced: it is elsewhere, or of another generation or fold version.
        """
        record = self._run(
            cypher.ADVANCE,
            stage=start.stage,
            partition=start.partition,
            generation=start.generation,
            position=str(start.position),
            fold_version=start.fold_version,
            to_position=str(to.position),
            to_seq=to.seq,
            to_digest=to.digest,
        ).single()
        if record is None:
            raise Fenced(
                stage=start.stage,
                partition=start.partition,
                position=str(start.position),
                generation=start.generation,
            )
        self._tombstones, self.dead_letters = record["forgotten"], record["dead_letters"]
        self.advanced = True

    def lock(self, stage: str, partition: int) -> Checkpoint | None:
        """Lock the checkpoint without moving it, and read it. None: there is none."""
        record = self._run(cypher.LOCK, stage=stage, partition=partition).single()
        if record is None:
            return None
        self._tombstones, self.dead_letters = record["forgotten"], record["dead_letters"]
        return _checkpoint({**record.data(), "stage": stage, "partition": partition})

    def reset(self, checkpoint: Checkpoint) -> int:
        """Put the checkpoint elsewhere under a new generation, which is returned."""
        record = self._run(
            cypher.RESET_CHECKPOINT,
            stage=checkpoint.stage,
            partition=checkpoint.partition,
            position=str(checkpoint.position),
            seq=checkpoint.seq,
            digest=checkpoint.digest,
            fold_version=checkpoint.fold_version,
            models=checkpoint.models,
        ).single(strict=True)
        return int(record["generation"])

    def facts(self, events: Sequence[Event], wanted: Wanted) -> Facts:
        """What the graph says about a batch: two or three round trips, whatever its size.

        Most events come after everything their session has, so the sessions' last events are
        read first, and neighbours one by one only where an event is late or there already.
        """
        tombstones = self.tombstones(events)
        tails: dict[SessionKey, Link] = {
            (record["tenant"], record["session_id"]): Link(
                record["occurred_at_ms"], record["event_id"]
            )
            for record in self._run(
                cypher.SESSION_TAILS, sessions=[list(key) for key in sorted(wanted.sessions)]
            )
        }
        neighbours: dict[tuple[SessionKey, Link], Neighbours] = {}
        late: dict[SessionKey, list[Link]] = {}
        for session, links in wanted.sessions.items():
            tail = tails.get(session)
            last = Neighbours(tail, None, False)
            for link in links:
                if tail is None or link > tail:
                    neighbours[session, link] = last
                else:
                    late.setdefault(session, []).append(link)
        if late:
            neighbours |= self.neighbours(late)
        return Facts(neighbours, tombstones)

    def neighbours(
        self, late: Mapping[SessionKey, Sequence[Link]]
    ) -> dict[tuple[SessionKey, Link], Neighbours]:
        """Neighbours of events that are not the last of their session; of each the sorted links.

        Where a session has several (a replay, an import out of order), the stretch of the chain
        that they span is read at once, thirty times faster than two searches an event; unless it
        holds far more than them.
        """
        found: dict[tuple[SessionKey, Link], Neighbours] = {}
        spans = {session: links for session, links in late.items() if len(links) >= _FEW}
        if spans:
            limit = _WIDE * max(len(links) for links in spans.values())
            chains: dict[SessionKey, list[Link]] = {session: [] for session in spans}
            for record in self._run(
                cypher.WINDOWS,
                windows=[
                    [*session, links[0].occurred_at_ms, links[-1].occurred_at_ms]
                    for session, links in spans.items()
                ],
                limit=limit,
            ):
                session = (record["tenant"], record["session_id"])
                chains[session].append(Link(record["occurred_at_ms"], record["event_id"]))
            for session, chain in chains.items():
                if len(chain) < limit:
                    chain.sort()
                    for link in spans[session]:
                        found[session, link] = neighbours_in(chain, link)
        single = [
            [*session, *link]
            for session, links in late.items()
            for link in links
            if (session, link) not in found
        ]
        if single:
            for record in self._run(cypher.NEIGHBOURS, links=single):
                session = (record["tenant"], record["session_id"])
                link = Link(record["occurred_at_ms"], record["event_id"])
                found[session, link] = Neighbours(
                    _link(record["before_ms"], record["before_id"]),
                    _link(record["after_ms"], record["after_id"]),
                    record["present"],
                )
        return found

    def sessions(self, sessions: Iterable[SessionKey]) -> list[neo4j.Record]:
        """The sessions' events and the edges that start there, as rows of `READ_SESSIONS`."""
        return list(self._run(cypher.READ_SESSIONS, sessions=[list(key) for key in sessions]))

    def dead_letters_of(self, stage: str, partition: int) -> list[neo4j.Record]:
        """What a stage could not fold of a partition."""
        return list(self._run(cypher.READ_DEAD_LETTERS, stage=stage, partition=partition))

    def dead_letter_seqs(self, stage: str, partition: int) -> set[int]:
        """Numbers of the entries that the stage has passed without folding them."""
        if not self.dead_letters:
            return set()
        rows = self._run(cypher.READ_DEAD_LETTERS, stage=stage, partition=partition)
        return {record["seq"] for record in rows}

    def tombstones(self, events: Iterable[Event]) -> set[tuple[str, str]]:
        """Keys of those events that were forgotten."""
        if not self._tombstones:
            return set()
        rows = self._run(cypher.TOMBSTONES, keys=[list(event.key) for event in events])
        return {(record["tenant"], record["event_id"]) for record in rows}

    def apply(self, operations: Operations, stage: str) -> None:
        """Run the batch."""
        for text, parameters in cypher.statements(operations, stage):
            self._run(text, parameters).consume()

    def add_dead_letter(self, stage: str, partition: int, seq: int, **fields: Any) -> None:
        """Record an entry that the stage passes, with the other properties of its row."""
        self._run(
            cypher.CREATE_DEAD_LETTER, stage=stage, partition=partition, seq=seq, **fields
        ).consume()

    def drop_later_dead_letters(self, stage: str, partition: int, seq: int) -> None:
        """Delete the records of entries behind `seq`: the ledger lost them, their numbers recur."""
        self._run(
            cypher.DELETE_LATER_DEAD_LETTERS, stage=stage, partition=partition, seq=seq
        ).consume()

    def drop_dead_letters(self, stage: str, partition: int, seqs: Sequence[int]) -> None:
        """Delete the records of entries that passed after all."""
        if self.dead_letters:
            self._run(
                cypher.DELETE_DEAD_LETTERS, stage=stage, partition=partition, seqs=list(seqs)
            ).consume()


def _link(occurred_at_ms: int | None, event_id: str | None) -> Link | None:
    if occurred_at_ms is None or event_id is None:
        return None
    return Link(occurred_at_ms, event_id)


def _checkpoint(record: Mapping[str, Any] | neo4j.Record) -> Checkpoint:
    return Checkpoint(
        stage=record["stage"],
        partition=record["partition"],
        position=Position.parse(record["position"]),
        seq=record["seq"],
        digest=record["digest"],
        generation=record["generation"],
        fold_version=record["fold_version"],
        models=record["models"],
    )
