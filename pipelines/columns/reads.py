"""What may be asked of columns by one viewer.

Answered where they are (`view_reads.py`), or asked from another process (`client.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from pipelines.columns.graph_scores import ActivationConfig
from pipelines.columns.records import (
    Array,
    ListAsked,
    Listed,
    OpenAsked,
    OpenThings,
    Standings,
    Steps,
    Stories,
    StoriesAsked,
)
from pipelines.graph.rows import (
    EntityName,
    EntitySurroundings,
    Hits,
    Least,
    SessionCandidates,
    SessionEvent,
    Signalled,
    is_event,
)

Worth = Literal["intent_weighted", "ppr", "activation"]
"""What tells how much a node is worth: the best path to it, PageRank, or spreading activation."""


class SessionAsked(NamedTuple):
    """Where a question is asked.

    Attributes:
        events: the last ones of the session, the newest first.
        speaking: those of the names under which somebody speaks or acts, sorted.
    """

    events: list[SessionEvent]
    speaking: list[str]


class SessionsAsked(NamedTuple):
    """Which sessions are listed: those with an event of each kind that is asked for.

    Attributes:
        words: in the id, or in the name of an agent, a user, a tool or a status; None: any.
        since_ms, until_ms: of events, milliseconds since the epoch, without the latter; None: any.
        failed: with something that failed.
        before: when the last event of the page's last session occurred, and its id.
        limit: of sessions.
    """

    words: str | None
    since_ms: int | None = None
    until_ms: int | None = None
    failed: bool = False
    before: tuple[int, str] | None = None
    limit: int = 50


class SessionLine(NamedTuple):
    """A session of a list, by the events of it that the viewer sees.

    Attributes:
        first_ms, last_ms: when the first and the last of them occurred.
        events, failed: how many there are, and how many of them failed.
        agents, users: the first few names.
        failed_event_id: of the last one that failed; None: none did.
    """

    session_id: str
    first_ms: int
    last_ms: int
    events: int
    failed: int
    agents: list[str]
    users: list[str]
    first_event_id: str
    failed_event_id: str | None


class SessionList(NamedTuple):
    """Sessions, the newest first.

    `withheld` counts those with events kept from the viewer, as many as a page has at most: that
    there are some is told, and not how many others have.
    """

    sessions: list[SessionLine]
    withheld: int


class SessionPage(NamedTuple):
    """Events of a session, in order.

    Attributes:
        events: when each occurred, in milliseconds since the epoch, and its id.
        total: events that the viewer sees, on all pages.
        withheld: how many are kept from the viewer.
    """

    events: list[tuple[int, str]]
    total: int
    withheld: int


class Wanted(NamedTuple):
    """Events that may be ranked, and what is asked about them.

    Attributes:
        around: these, and up to NEIGHBOUR_STEPS events before and after each in its session.
        ids: these alone.
        met: the first `most_met` of these that are not among the others.
        stems: of the question.
        vector: of the question, of unit length; None: it has none.
    """

    around: Sequence[str]
    ids: Sequence[str]
    met: Sequence[str]
    most_met: int
    stems: Sequence[str]
    vector: Sequence[float] | None


class Beside(NamedTuple):
    """What proactive context starts from.

    Attributes:
        session_ids: ids of the summaries of the sessions that the answer is about.
        event_ids: of the best events of the answer.
        entity_ids: own ids of the entities that the query names.
        history: ids of events that were shown in this session before.
    """

    session_ids: Sequence[str]
    event_ids: Sequence[str]
    entity_ids: Sequence[str]
    history: Sequence[str]


class WalkAsked(NamedTuple):
    """A walk from some nodes.

    Attributes:
        seeds: by wire id, with scores from 0 to 1.
        weights: what an edge of full quality lets through, 0 to 1, by type, view and intent.
        confidences: of the intents, 0 to 1.
        others_share: of what further intents add to the best one's score, 0 to 1.
        caps: edges of a type that are followed at one node, at most.
        max_depth: levels that are read, at least 1.
        method: by which nodes are worth something.
        activation: how it spreads, where that is the method.
        beside: what was met is told, too, for what stands beside something; else PageRank is, from
            what the seeds are worth. Both by the default method alone.
    """

    seeds: Mapping[str, float]
    weights: Array
    confidences: Sequence[float]
    others_share: float
    caps: Mapping[str, int]
    max_depth: int
    method: Worth = "intent_weighted"
    activation: ActivationConfig | None = None
    beside: bool = False


class Walked(NamedTuple):
    """What a walk has met, a place a node; the seeds come first.

    Attributes:
        ids: wire ids.
        edges: between these places; None: they were not asked for.
        depths: fewest edges from a seed.
        worth: by the method of the walk, 0 to 1; NaN: nothing leads there.
        spread: PageRank, the best node having 1; empty: it was not asked for.
        connected: whether it is at an edge.
    """

    ids: list[str]
    edges: Steps | None
    depths: Array
    worth: Array
    spread: Array
    connected: Array

    def events(self) -> list[str]:
        """Ids of the events at edges, by their worth."""
        told = zip(self.ids, self.worth.tolist(), self.connected.tolist(), strict=True)
        worth = ((-one, node_id) for node_id, one, is_met in told if is_met and one == one)
        return [node_id for _, node_id in sorted(worth) if is_event(node_id)]


class Reached(NamedTuple):
    """What a walk has met, and what ranking must know of events."""

    walk: Walked
    standings: Standings


class Mentions(NamedTuple):
    """Events that mention some entities.

    Attributes:
        events: when each occurred, in milliseconds since the epoch, and its id; the newest first,
            of those of one moment the smaller id.
        withheld: how many are kept from the viewer, whatever the page.
    """

    events: list[tuple[int, str]]
    withheld: int


class NameReads(Protocol):
    """Questions about entities by their names."""

    def found(self, words: Sequence[str], names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities by the words of their names, then by a canonical name; each once.

        Args:
            words: a name has one that begins with one of them.
            names: canonical ones.
            limit: of either kind.
        """
        ...

    def found_by_name(self, names: Sequence[str], limit: int) -> list[EntityName]:
        """Entities with one of the canonical names."""
        ...

    def found_by_id(self, ids: Sequence[str]) -> list[EntityName]:
        """Entities of the ids."""
        ...

    def found_near(self, vector: Sequence[float], limit: int) -> list[tuple[EntityName, float]]:
        """Entities with the nearest names, and the plain cosine, the nearest first."""
        ...

    def same_as(self, ids: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs that were found to be the same, from the ids on as far as five steps lead."""
        ...

    def mentioned(self, ids: Iterable[str]) -> dict[str, int]:
        """How many events that the viewer sees mention an entity that it knows, by id."""
        ...

    def newest_mentions(self, ids: Iterable[str], limit: int) -> dict[str, list[str]]:
        """Ids of the newest events that the viewer sees and that mention an entity, by its id.

        Of those of one moment the smaller id comes first; an entity that none mentions is left out.
        """
        ...

    def surroundings(self, ids: Iterable[str]) -> dict[str, EntitySurroundings]:
        """How an entity stands in the graph of facts, by id."""
        ...


class ColumnReads(NameReads, Protocol):
    """Questions of one viewer.

    Raises:
        QueryTimeout: there was no answer in time.
        GraphUnavailable: nobody holds the columns, or they are being loaded.
    """

    def session(self, session_id: str, names: Sequence[str]) -> SessionAsked:
        """The last events of a session, and which of canonical names somebody acts under."""
        ...

    def session_user(self, session_id: str) -> str | None:
        """Whose session it is, whoever looks: by its first event of a user; None: nobody's."""
        ...

    def sessions(self, wanted: SessionsAsked) -> SessionList:
        """The sessions in which the viewer sees something, the newest first."""
        ...

    def session_page(
        self, session_id: str, behind: tuple[int, str] | None, limit: int
    ) -> SessionPage:
        """The events of a session in order, behind (time, event id)."""
        ...

    def session_candidates(self, session_id: str, limit: int) -> SessionCandidates:
        """Events among which the session's `limit` best by decay score are, and how many it has."""
        ...

    def text_hits(self, stems: Sequence[str], limit: int) -> Hits:
        """Events whose text holds the stems, the best first, and those kept from the viewer."""
        ...

    def vector_hits(self, vector: Sequence[float], limit: int) -> Hits:
        """The nearest events by plain cosine, the nearest first; see `text_hits`."""
        ...

    def standings(self, wanted: Wanted) -> Standings:
        """Events that the viewer sees."""
        ...

    def last_ms(self, until_ms: int) -> int | None:
        """When the newest event that the viewer sees occurred, of those before a moment.

        Milliseconds since the epoch; None: there is none.
        """
        ...

    def listed(self, question: ListAsked) -> Listed:
        """All events of a sort, counted, and the first of them."""
        ...

    def open_things(self, question: OpenAsked) -> OpenThings:
        """What was opened and is not known to be closed."""
        ...

    def stories(self, question: StoriesAsked) -> Stories:
        """The stories that a question may be answered from."""
        ...

    def pending(self, event_ids: Sequence[str]) -> list[str]:
        """Those of some events that the viewer sees, and that are not in the graph yet."""
        ...

    def vectors(self, event_ids: Sequence[str]) -> Array:
        """Vectors of unit length, a row an event; zeros of one that has none or is not seen."""
        ...

    def mentions(self, ids: Iterable[str], before: tuple[int, str], limit: int) -> Mentions:
        """The newest events that mention any of the entities, behind (time, event id).

        Args:
            ids: of entities.
            before: of the last event of the page before; milliseconds since the epoch.
            limit: of events.
        """
        ...

    def steps(self, node_ids: Iterable[str], caps: Mapping[str, int]) -> Steps:
        """The edges around some nodes, at most `caps` of each type at each, the best of them."""
        ...

    def walked(self, walk: WalkAsked, wanted: Wanted) -> Reached:
        """What a walk from some nodes meets, and what ranking must know of events.

        Args:
            walk: from where, and how.
            wanted: without `met`, which are the events that the walk meets.
        """
        ...

    def beside(self, start: Beside, least: Least) -> list[Signalled]:
        """Events nobody asked for, the most telling first."""
        ...
