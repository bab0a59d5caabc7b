"""Questions about a graph, each with its time limit, and what entities are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import neo4j

from enrichment.resolution import edges_of_sameness
from pipelines.graph.driver_errors import driver_errors
from projections.schema import ENTITY, SAME_AS

SAME = (
    f"UNWIND $ids AS id MATCH (:{ENTITY.label} {{tenant: $tenant, entity_id: id}})"
    f"-[s:{SAME_AS.type}]-(o:{ENTITY.label}) WHERE NOT coalesce(s.retracted, false) "
    "RETURN id AS one, o.entity_id AS other, "
    "coalesce(o.display_name, o.name, o.canonical_name) AS name, "
    "coalesce(o.corrected_type, o.entity_type) AS entity_type, o.subtype AS subtype"
)


class GraphQuestions:
    """Asks one graph; safe to share between threads.

    Args:
        driver: of the target.
        database: of the target.
        timeout_s: of one question.
    """

    def __init__(
        self, driver: neo4j.Driver, database: str = "neo4j", *, timeout_s: float = 60.0
    ) -> None:
        self._driver = driver
        self._database = database
        self._timeout_s = timeout_s

    def same(self, tenant: str, entity_ids: Iterable[str]) -> list[neo4j.Record]:
        """Edges of sameness around entities: one, other, and of the other what it is called."""
        return edges_of_sameness(entity_ids, lambda ids: self.ask(SAME, tenant=tenant, ids=ids))

    def ask(self, text: str, **parameters: Any) -> list[neo4j.Record]:
        """All rows of an answer."""
        with self._session() as session:
            return list(session.run(self._query(text), parameters))

    def stream(self, text: str, fetch_size: int, **parameters: Any) -> Iterator[neo4j.Record]:
        """The rows of an answer, so many of them in memory at once."""
        with self._session(fetch_size=fetch_size) as session:
            yield from session.run(self._query(text), parameters)

    def by_place(
        self, text: str, *, session_id: str = "", at_ms: int = 0, **parameters: Any
    ) -> Iterator[list[neo4j.Record]]:
        """The rows of a question in the order of session, time and event id, page by page.

        Args:
            text: takes `session_id`, `at_ms` and `event_id`, behind which its rows stand, and
                returns `session_id`, `occurred_at_ms` and `event_id`.
            session_id: where the first page begins.
            at_ms: in that session, behind this moment.
            parameters: further ones, among them how many rows a page has.
        """
        place = {"session_id": session_id, "at_ms": at_ms, "event_id": ""}
        while rows := self.ask(text, **place, **parameters):
            yield rows
            last = rows[-1]
            place = {
                "session_id": last["session_id"],
                "at_ms": last["occurred_at_ms"],
                "event_id": last["event_id"],
            }

    def _query(self, text: str) -> neo4j.Query:
        return neo4j.Query(text, timeout=self._timeout_s)

    @contextmanager
    def _session(self, **options: Any) -> Iterator[neo4j.Session]:
        with (
            driver_errors(),
            self._driver.session(
                database=self._database, default_access_mode=neo4j.READ_ACCESS, **options
            ) as session,
        ):
            yield session
