"""What a pass calls entities: as those know them whose words it tells, and never as another does.

An entity has the name, and the finer type, of its earliest mention, which may be another user's.
Whoever knows it from elsewhere writes it in a way of their own, or as all have in common; and what
somebody does not know is not said to be the same as what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from consolidation.sources import Described, Mentioned
from enrichment.names import components, edges_of_sameness
from pipelines.graph.port import Reads
from pipelines.graph.rows import End, FoundEdge, FoundNode
from projections.events import EVERYONE
from projections.operations import Key
from projections.schema import ENTITY, SAME_AS

_NAMES = (
    "display_name",
    "name",
    "canonical_name",
    "corrected_type",
    "entity_type",
    "subtype",
    "first_user_id",
)


def entity_nodes(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> dict[str, FoundNode]:
    """What there is of entities, by id, for `is_named` and `described`."""
    keys = [(tenant, entity_id) for entity_id in sorted(set(entity_ids))]
    return {key[1]: node for key, node in graph.nodes(ENTITY.label, keys, _NAMES).items()}


def is_named(node: FoundNode, user_id: str | None) -> bool:
    """Whether the name of an entity is a user's to see: the mention that it comes from is.

    What nothing mentions has no name, and is nobody's.

    Args:
        node: of `entity_nodes`.
        user_id: None: nobody, who knows what is shared; EVERYONE: an operator.
    """
    return user_id == EVERYONE or node.values["first_user_id"] in (None, user_id)


def described(node: FoundNode, user_id: str | None, *, spelled: str | None = None) -> Described:
    """What a user calls an entity; without a name if nobody does.

    Args:
        node: as `is_named` takes it.
        user_id: likewise.
        spelled: how the user does that, where the name is another's; None: as all have in common.
    """
    values = node.values
    named = (values["name"],) if is_named(node, user_id) else (spelled,)
    return Described(
        _first(values["display_name"], *named, values["canonical_name"]),
        _first(values["corrected_type"], values["entity_type"]),
        values["subtype"],
    )


def _first(*texts: str | None) -> str:
    """The first that is there."""
    return next((text for text in texts if text is not None), "")


def same_entities(graph: Reads, tenant: str, entity_ids: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of entities that are the same: around entities, those that they lead to, and so on."""

    def around(ids: list[str]) -> list[dict[str, str]]:
        keys = [(tenant, entity_id) for entity_id in ids]
        edges = graph.edges(SAME_AS.type, keys, ("retracted",), by=End.EITHER)
        return [
            {"one": end[1], "other": (edge.target if edge.source == end else edge.source)[1]}
            for end, some in edges.items()
            for edge in some
            if not edge.values["retracted"]
        ]

    return [(row["one"], row["other"]) for row in edges_of_sameness(entity_ids, around)]


class EntityNames:
    """What events mention, each as its own user knows it: no pass tells one user another's words.

    Args:
        graph: that is read.
        tenant: of the events.
        sessions: and their events.
        mentions: edges of these.
    """

    def __init__(
        self,
        graph: Reads,
        tenant: str,
        sessions: Mapping[str, Sequence[FoundNode]],
        mentions: Mapping[Key, Sequence[FoundEdge]],
    ) -> None:
        ids = {edge.target[1] for edges in mentions.values() for edge in edges}
        self._pairs = same_entities(graph, tenant, ids) if ids else []
        self._nodes = entity_nodes(graph, tenant, ids.union(*self._pairs))
        self._mentions = mentions
        self._met: dict[tuple[str, str | None], set[str]] = {}
        for session_id, nodes in sessions.items():
            for node in nodes:
                targets = {edge.target[1] for edge in mentions.get(node.key, ())}
                met = self._met.setdefault((session_id, node.values["user_id"]), set())
                met.update(targets)
        self._groups: dict[tuple[str, str | None], dict[str, list[str]]] = {}

    def of(self, session_id: str, event: FoundNode) -> Iterator[Mentioned]:
        """What an event of a session mentions."""
        user_id: str | None = event.values["user_id"]
        place = session_id, user_id
        if place not in self._groups:
            self._groups[place] = self._known_same(session_id, user_id)
        for edge in self._mentions.get(event.key, ()):
            own_id = edge.target[1]
            group = self._groups[place].get(own_id, [own_id])
            spelled = {own_id: edge.values["name"]}
            shown = (
                described(self._nodes[one], user_id, spelled=spelled.get(one))
                for one in group
                if one in self._nodes
            )
            # one that nothing mentions has no name, and is called as the next that is the same
            called = next((one for one in shown if one.name), Described("", ""))
            yield Mentioned(group[0], *called, role=edge.values.get("role", ""))

    def _known_same(self, session_id: str, user_id: str | None) -> dict[str, list[str]]:
        """By id of each entity that a user knows to be the same as others, all of those, sorted."""
        if not self._pairs:
            return {}
        met = {one for user in {None, user_id} for one in self._met.get((session_id, user), ())}
        named = {own_id for own_id, node in self._nodes.items() if is_named(node, user_id)}
        canonical = components(pair for pair in self._pairs if (met | named).issuperset(pair))
        groups: dict[str, list[str]] = {}
        for own_id in sorted(canonical):
            groups.setdefault(canonical[own_id], []).append(own_id)
        return {own_id: groups[first] for own_id, first in canonical.items()}
