"""Passes over a stack whose graph has what enrichment would have found, as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.graph.reads.consolidation import ConsolidationReader
from pipelines.ledger.ledger import Appended
from pipelines.operations.passes.deciding import PassReport
from pipelines.operations.passes.run import CommunitySettings, Pass
from pipelines.operations.passes.scopes import PassScope
from projections.errors import EventConflict
from projections.events import Event
from projections.schema import CAUSED_BY, LINKED_TO, MEMBER_OF, REFERENCES, RELATES_TO
from tests.factories import NOW_MS, START_MS, event_id
from tests.integration.consolidation_support import Consolidated


class Passing(Consolidated):
    """Passes with a clock of their own."""

    settings = CommunitySettings()

    def reader(self) -> ConsolidationReader:
        return ConsolidationReader(self.stack.driver)

    def append(self, events: Sequence[Event]) -> None:
        for outcome in self.stack.ledger.append(events):
            assert isinstance(outcome, Appended | EventConflict), outcome

    def run(
        self,
        *scopes: PassScope,
        now_ms: int = NOW_MS,
        applied: Callable[[], None] | None = None,
        in_time: Callable[[], bool] = lambda: True,
    ) -> PassReport:
        """A pass of these scopes, or of everything."""
        made = Pass(
            self.reader(),
            self.append,
            applied or self.fold,
            now_ms=now_ms,
            run_id="run-1",
            in_time=in_time,
            communities=self.settings,
        )
        return made.run_scopes(scopes) if scopes else made.run()

    def seqs(self) -> list[int]:
        return [tail.seq for tail in self.stack.ledger.tails()]

    # -- what enrichment would have found ----------------------------------------------------------

    def mention(self, number: int, *names: str, entity_type: str = "resource") -> None:
        """An event mentions entities; their ids are their names."""
        self.stack.cypher(
            "MATCH (e:Event {event_id: $id}) UNWIND $names AS name "
            "MERGE (n:Entity {tenant: e.tenant, entity_id: name}) "
            "SET n.canonical_name = name, n.name = name, n.entity_type = $type "
            f"MERGE (e)-[:{REFERENCES.type} {{role: 'object'}}]->(n)",
            id=event_id(number),
            names=[entity_id(name) for name in names],
            type=entity_type,
        )

    def say(self, number: int, text: str) -> None:
        """An event has a text."""
        self.stack.cypher(
            "MATCH (e:Event {event_id: $id}) SET e.text = $said", id=event_id(number), said=text
        )

    def cause(self, effect: int, cause: int, rule: str) -> None:
        """An inferred cause."""
        self.stack.cypher(
            "MATCH (a:Event {event_id: $a}), (b:Event {event_id: $b}) "
            f"CREATE (a)-[:{CAUSED_BY.type} {{mechanism: 'inferred', rule: $rule, "
            "confidence: 0.9}]->(b)",
            a=event_id(effect),
            b=event_id(cause),
            rule=rule,
        )

    def relate(
        self, source: str, target: str, *, user: str | None = None, literal: bool = False
    ) -> None:
        """A fact about entities; their ids are their names."""
        self.stack.cypher(
            "MERGE (a:Entity {tenant: 'default', entity_id: $a}) "
            "SET a.name = $source, a.canonical_name = $source, a.entity_type = 'concept' "
            "MERGE (b:Entity {tenant: 'default', entity_id: $b}) "
            "SET b.name = $target, b.canonical_name = $target, b.entity_type = 'concept', "
            "b.subtype = CASE WHEN $literal THEN 'value' ELSE null END "
            f"CREATE (a)-[:{RELATES_TO.type} {{relation: 'knows', edge_type: 'semantic', "
            "valid_from: datetime({epochMillis: $from_ms}), event_id: 'e', confidence: 0.9, "
            "fact: $source + ' knows ' + $target, user_id: $user, support_count: 1}]->(b)",
            a=entity_id(source),
            b=entity_id(target),
            source=source,
            target=target,
            from_ms=START_MS,
            user=user,
            literal=literal,
        )

    # -- what passes made of it --------------------------------------------------------------------

    def links(self) -> dict[tuple[str, str], Any]:
        """Evidence and resolution by the two sessions."""
        rows = self.stack.cypher(
            f"MATCH (a)-[l:{LINKED_TO.type}]->(b) "
            "RETURN a.session_id, b.session_id, l.evidence, l.resolution_event_id"
        )
        return {(one, other): (evidence, resolved) for one, other, evidence, resolved in rows}

    def boosts(self) -> dict[str, float]:
        """Boosts by event id."""
        rows = self.stack.cypher(
            "MATCH (e:Event) WHERE e.importance_boost > 0 RETURN e.event_id, e.importance_boost"
        )
        return dict(map(tuple, rows))

    def communities(self) -> dict[frozenset[str], str | None]:
        """Users by the names of the members."""
        rows = self.stack.cypher(
            f"MATCH (n:Entity)-[:{MEMBER_OF.type}]->(c:Community) WHERE c.fingerprint IS NOT NULL "
            "RETURN collect(n.name), c.user_id, c.community_id"
        )
        return {frozenset(names): user for names, user, _ in rows}


def entity_id(name: str) -> str:
    """An id for a name."""
    return name.encode().hex().ljust(32, "0")[:32]
