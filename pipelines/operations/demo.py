"""The demonstration: a payment agent charged a customer twice; the memory says why.

`pipelines/scenarios/payment_incident.jsonl` is the scenario, one event a line in order of
arrival: six sessions interleaved, the gateway's reports minutes late, two effects that arrive
before their causes, time-outs and retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.events import EventReads
from pipelines.graph.reads.scope import operator_scope
from pipelines.operations.api import SUBGRAPH, ApiClient
from pipelines.work.services import Services
from projections.events import DEFAULT_TENANT, Event, timestamp_text
from projections.schema import CAUSED_BY

EVENTS = 75
FAILURE = "019cb8a0-4711-7000-8000-000000000016"
"""order.charged_twice, in session checkout-4711."""
ROOT = "019cb8a0-0088-7000-8000-000000000001"
"""What it goes back to: a question in session deploy-88."""
CHANGE = "019cb8a0-0088-7000-8000-000000000006"
"""config.changed: a time limit that was shorter from then on."""
_SUPPORT = "019cb8a0-0301-7000-8000-0000000000"
"""How ids begin of the events of session support-301."""
TOOLS = ["list_charges", "refund", "find_refund"]
"""That the support agent called."""
READ_TIMEOUT_MS = 30_000
ASK_TIMEOUT_MS = 30_000
_NEIGHBOURS = 50
_SUMMARY_CHARACTERS = 76


class Happening(NamedTuple):
    """An event of a lineage: its place in the graph, and what it says, from the ledger."""

    event_id: str
    event_type: str
    at: str
    session_id: str
    agent_id: str
    tool_name: str | None
    status: str | None
    position: str
    text: str
    effects: tuple[Happening, ...] = ()


class Lineage(NamedTuple):
    """Why something happened, nearest cause first, and what came of it."""

    event: Happening
    causes: tuple[Happening, ...]


class Question(NamedTuple):
    """A question of the tour.

    Attributes:
        text: as it is asked.
        session_id: in which it is asked.
        intent: that is understood.
        right: events one of which comes first; empty: its tree tells whether it is right.
    """

    text: str
    session_id: str
    intent: str
    right: frozenset[str] = frozenset()


QUESTIONS: Final = (
    Question("Why was order 4711 charged twice?", "checkout-4711", "why"),
    Question(
        "What tools did the support agent use for order 4711?",
        "support-301",
        "what",
        frozenset(f"{_SUPPORT}{call}" for call in ("03", "05", "07", "09", "11")),
    ),
    Question(
        "Find events similar to the refund that timed out",
        "support-301",
        "related",
        frozenset(f"{_SUPPORT}{failure}" for failure in ("06", "08")),
    ),
)


class Reply(NamedTuple):
    """What the API says to a question; `why`: the tree of causes, when that was asked."""

    question: Question
    document: Mapping[str, Any]
    why: Mapping[str, Any] | None = None

    @property
    def node_ids(self) -> list[str]:
        """Of what was found, the best first."""
        return [str(node["node_id"]) for node in self.document["nodes"]]

    @property
    def explained_by(self) -> set[str]:
        """The events of the tree."""
        tree = () if self.why is None else self.why["answer"]["tree"]
        return {str(step["node_id"]) for step in tree}


def replies(client: ApiClient) -> list[Reply]:
    """The answers to the questions, each as the support agent would ask it."""
    return [_reply(client, question) for question in QUESTIONS]


def _reply(client: ApiClient, question: Question) -> Reply:
    body = {
        "query": question.text,
        "session_id": question.session_id,
        "agent_id": "support-agent",
        "max_nodes": 30,
        "timeout_ms": ASK_TIMEOUT_MS,
        "record_access": False,
    }
    document = client.ask(SUBGRAPH, body, DEFAULT_TENANT).document
    return Reply(question, document, client.why(body, document, DEFAULT_TENANT))


def scenario_path() -> Path:
    """The scenario, as it lies in the installed package."""
    return Path(str(resources.files("pipelines") / "scenarios" / "payment_incident.jsonl"))


def lineage(services: Services, event_id: str) -> Lineage:
    """Causes and effects of an event, read from the active target.

    Raises:
        KeyError: the event is not in the graph.
    """
    start, causes = services.reader(services.active()).read(
        lambda graph: _walk(graph, event_id), timeout_ms=READ_TIMEOUT_MS
    )

    def told(tree: _Tree) -> Happening:
        entry = services.ledger.find(DEFAULT_TENANT, tree.node.node_id)
        event = entry.event() if entry else None
        return _happening(tree.node, event, tuple(told(effect) for effect in tree.effects))

    return Lineage(told(start), tuple(told(_Tree(cause, ())) for cause in causes))


class _Tree(NamedTuple):
    node: GraphNode
    effects: tuple[_Tree, ...]


def _walk(graph: GraphRead, event_id: str) -> tuple[_Tree, list[GraphNode]]:
    """The event with its effects below it, and the chain of its causes."""
    seen = {event_id}
    reads = EventReads(graph, operator_scope(DEFAULT_TENANT, now_ms=0))

    def neighbours(of: str, forward: bool) -> list[GraphNode]:
        nodes = reads.neighbours([of], CAUSED_BY, forward=forward, seen=seen, limit=_NEIGHBOURS)
        seen.update(node.node_id for node in nodes)
        return nodes

    def effects(of: str) -> tuple[_Tree, ...]:
        nodes = sorted(neighbours(of, False), key=lambda n: int(n.properties["occurred_at"]))
        return tuple(_Tree(node, effects(node.node_id)) for node in nodes)

    causes: list[GraphNode] = []
    nearest = event_id
    while nodes := neighbours(nearest, True):
        causes.append(nodes[0])
        nearest = nodes[0].node_id
    node = reads.events([event_id])[event_id]
    return _Tree(node, effects(event_id)), causes


def _happening(node: GraphNode, event: Event | None, effects: tuple[Happening, ...]) -> Happening:
    properties = node.properties
    return Happening(
        event_id=node.node_id,
        event_type=properties["event_type"],
        at=timestamp_text(int(properties["occurred_at"])),
        session_id=properties["session_id"],
        agent_id=properties["agent_id"],
        tool_name=properties.get("tool_name"),
        status=properties.get("status"),
        position=properties["global_position"],
        text=summary(event.payload if event else None),
        effects=effects,
    )


def summary(payload: Any) -> str:
    """One line of what an event says."""
    if isinstance(payload, dict):
        for name in ("content", "error", "text", "title", "note"):
            if isinstance(payload.get(name), str):
                return _cut(payload[name])
        inner = payload.get("arguments") or payload.get("result") or payload
        if isinstance(inner, dict):
            return _cut(", ".join(f"{name} {_plain(value)}" for name, value in inner.items()))
        return _cut(_plain(inner))
    return "" if payload is None else _cut(_plain(payload))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return str(value)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARACTERS else line[: _SUMMARY_CHARACTERS - 1] + "…"


def _intents(reply: Reply) -> Mapping[str, Any]:
    intents: Mapping[str, Any] = reply.document["meta"]["inferred_intents"]
    return intents


class Check(NamedTuple):
    """Something that must hold for the demonstration to be true."""

    ok: bool
    what: str


def checks(
    *,
    imported: Any,
    again: Any,
    story: Lineage,
    answered: Sequence[Reply],
    verified: Any,
    fresh: bool,
    placeholders: int,
) -> Sequence[Check]:
    """What must hold at the end; `fresh`: the ledger held nothing else."""
    right = [set(reply.node_ids[:1]) <= reply.question.right for reply in answered[1:]]
    understood = [reply.question.intent in _intents(reply) for reply in answered]
    return (
        Check(imported.read == EVENTS and not imported.refused, "every event was taken"),
        Check(again.new == 0 and not again.refused, "a second import added nothing"),
        Check(
            bool(story.causes) and story.causes[-1].event_id == ROOT,
            "the failure is traced to its root, in another session",
        ),
        Check(
            all(reply.node_ids for reply in answered) and all(understood),
            "three questions are understood and answered",
        ),
        Check(
            bool(answered) and {FAILURE, CHANGE} <= answered[0].explained_by,
            "the first answer leads from the failure to the change behind it",
        ),
        Check(
            all(right) and answered[1].document["answer"]["value"] == TOOLS,
            "the others begin with what is right, and the tools are those that were called",
        ),
        Check(placeholders == 0 or not fresh, "no event waits for its parent"),
        Check(
            verified.ok and (verified.events == EVENTS or not fresh),
            "the graph says what the ledger says",
        ),
    )
