"""Entities as a viewer of the columns finds them: by name, by meaning, and who is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy

from enrichment.names import edges_of_sameness
from pipelines.columns.view import View
from pipelines.graph.reads.scope import OVER_FETCH
from pipelines.graph.rows import EntityName, EntitySurroundings


class ColumnNames:
    """The questions of `FactReads` about entities, answered from columns.

    Args:
        view: who looks.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._entities = view.tenant.entities

    def found(self, words: Sequence[str], names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities by the words of their names, then by a canonical name; each once.

        Args:
            words: a name has one that begins with one of them.
            names: canonical ones.
            limit: of either kind.
        """
        scored = self._entities.with_words(words)
        ids = self._entities.all
        order = sorted(scored, key=lambda row: (-scored[row], ids[row].entity_id))
        rows = self._seen(order[: OVER_FETCH * limit])[:limit]
        rows += self._seen(self._entities.named(names))[:limit]
        return [self._named(row) for row in dict.fromkeys(rows)]

    def found_by_name(self, names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities with one of the canonical names."""
        return [self._named(row) for row in self._seen(self._entities.named(names))[:limit]]

    def found_by_id(self, ids: Sequence[str]) -> list[EntityName]:
        """Entities of the ids."""
        return [self._named(row) for row in self._seen(self._rows(ids))]

    def found_near(self, vector: Sequence[float], limit: int) -> list[tuple[EntityName, float]]:
        """Entities with the nearest names, and the plain cosine, the nearest first."""
        stands = numpy.array([entity.stands for entity in self._entities.all], dtype=bool)
        wanted = numpy.array(vector, dtype=numpy.float32)
        rows, cosines = self._entities.vectors.nearest(
            wanted, stands, OVER_FETCH * limit, self._entities.ranks
        )
        scored = dict(zip(rows.tolist(), cosines.tolist(), strict=True))
        near = [(self._named(row), scored[row]) for row in self._seen(scored)]
        return sorted(near, key=lambda match: (-match[1], match[0].entity_id))[:limit]

    def same_as(self, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs that were found to be the same, from the ids on as far as five steps lead."""
        rows = edges_of_sameness(ids, self._same)
        return [(row["one"], row["other"]) for row in rows]

    def _same(self, ids: Sequence[str]) -> list[dict[str, str]]:
        entities = self._entities.all
        return [
            {"one": entities[row].entity_id, "other": entities[other].entity_id}
            for row in self._seen(self._rows(ids))
            for other in sorted(self._seen(entities[row].same), key=self._id)
        ]

    def mentioned(self, ids: Iterable[str]) -> dict[str, int]:
        """How many events that the viewer sees mention an entity that it knows, by id."""
        entities, seen = self._entities.all, self._view.seen
        return {
            entities[row].entity_id: int(seen[entities[row].mentioned_in()].sum())
            for row in self._seen(self._rows(ids))
        }

    def newest_mentions(self, ids: Iterable[str], limit: int) -> dict[str, list[str]]:
        """Ids of the newest events that the viewer sees and that mention an entity, by its id.

        Of those of one moment the smaller id comes first; an entity that none mentions is left out.
        """
        newest = {
            self._entities.all[row].entity_id: self._view.newest(
                self._entities.all[row].mentioned_in(), limit
            )
            for row in self._seen(self._rows(ids))
        }
        return {own_id: [one for _, one in events] for own_id, events in newest.items() if events}

    def surroundings(self, ids: Iterable[str]) -> dict[str, EntitySurroundings]:
        """How an entity stands in the graph of facts, by id."""
        return {
            self._entities.all[row].entity_id: self._surroundings(row)
            for row in self._seen(self._rows(ids))
        }

    def _surroundings(self, row: int) -> EntitySurroundings:
        entity, view = self._entities.all[row], self._view
        seen = [fact for fact in entity.facts if view.sees_fact(fact)]
        communities = view.tenant.communities
        mine = sorted(
            community
            for community in entity.communities
            if view.sees_made(communities.get(community))
        )
        return EntitySurroundings(
            degree=len(seen),
            edge_types=len({fact.edge_type for fact in seen}),
            community_id=mine[0] if mine else None,
            is_same=bool(entity.same),
        )

    def _rows(self, ids: Iterable[str]) -> list[int]:
        rows = self._entities.rows
        return [rows[own_id] for own_id in dict.fromkeys(ids) if own_id in rows]

    def _id(self, row: int) -> str:
        return self._entities.all[row].entity_id

    def _seen(self, rows: Iterable[int]) -> list[int]:
        return [row for row in rows if self._view.sees_entity(row)]

    def _named(self, row: int) -> EntityName:
        """An entity as the viewer may know it."""
        entity = self._entities.all[row]
        first = self._view.scope.sees_user(entity.first_user_id)
        name = entity.name if first else None
        names = (entity.canonical_name, name, entity.display_name)
        return EntityName(
            entity_id=entity.entity_id,
            name=self._view.name_of(entity),
            entity_type=entity.corrected_type or entity.entity_type,
            subtype=entity.subtype if first else None,
            names=tuple(dict.fromkeys(one for one in names if one)),
        )
