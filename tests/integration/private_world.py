"""Small worlds in which every user has words that nobody else has, and who may see which of them.

Who sees what is worked out here from the events and from the graph as it lies there, by the rule of
decision 14 and by none of the product's code: a word of another user alone, an id of what comes
from another user alone, is in `World.hidden_from`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from projections.events import Event, timestamp_text
from tests.factories import START_MS, event
from tests.integration.stack import Stack

TENANT, OTHER = "acme", "other"
NAMES = ("ann", "bob", "cat")
SHARED_WORD = "commonword"
SHARED_PLACE = "Zephyr Ledger"
SPELLINGS = {"ann": "ZEPHYR ledger", "bob": "zEPHYR Ledger", "cat": "ZePhYr LeDgEr"}
"""The name of one thing, as each user writes it: as it stands here it is the user's own."""
ROOM, HALL = "room-of-all", "hall-of-nobody"
"""Sessions: of all users and nobody, and of nobody alone."""
AGENT = "desk"


@dataclass
class World:
    """What was said, and what of it is whose.

    Attributes:
        events: in no order of theirs.
        users: ids by name, the same in both tenants.
        words: by tenant and user, words that stand in nothing else; all in small letters.
    """

    events: list[Event] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)
    words: dict[tuple[str, str | None], list[str]] = field(default_factory=dict)

    def session_of(self, name: str) -> str:
        """Where a user is alone."""
        return f"session-{self.words[TENANT, self.users[name]][0]}"

    def message_of(self, user_id: str | None) -> str:
        """The id of a user's, or nobody's, first message in the common room of the tenant."""
        return next(
            one.event_id
            for one in self.events
            if (one.tenant, one.user_id, one.session_id) == (TENANT, user_id, ROOM)
        )

    def spelling(self, user_id: str | None) -> str:
        """How the name of the one thing is written by a user, or by nobody."""
        by_user = {own_id: SPELLINGS[name] for name, own_id in self.users.items()}
        return SHARED_PLACE if user_id is None else by_user[user_id]

    def own_words(self, user_id: str | None) -> list[str]:
        """Of a user of the tenant, or of nobody."""
        return self.words[TENANT, user_id]


def world(seed: int) -> World:
    """Two tenants with the same users; each tells, calls and states, alone and in one room."""
    chosen = random.Random(seed)
    made = World(users={name: f"{name}{_word(chosen)}" for name in NAMES})
    number = iter(range(1, 1_000))
    for tenant in (TENANT, OTHER):
        told: list[Event] = []
        for user_id in (None, *made.users.values()):
            made.words[tenant, user_id] = [_word(chosen) for _ in range(6)]
        people = (None, *(made.users.values() if tenant == TENANT else [made.users["ann"]]))
        for user_id in people:
            told += _life(made, tenant, user_id, number)
        told += _room(made, tenant, people, number)
        chosen.shuffle(told)
        told += [one for user_id in people for one in _more_stated(made, tenant, user_id, number)]
        # In another order than they are numbered: who mentions a thing first differs by seed.
        made.events += [
            one._replace(occurred_at_ms=START_MS + 1_000 * place)
            if one.parent_event_id is None
            else one._replace(occurred_at_ms=START_MS + 1_000 * (500 + place))
            for place, one in enumerate(told)
        ]
    return made


def _word(chosen: random.Random) -> str:
    return "q" + "".join(chosen.choice("bdfgklmnprtvz") + chosen.choice("aeiou") for _ in range(5))


def _where(made: World, tenant: str, user_id: str | None) -> dict[str, Any]:
    """A session of the user's own, or of nobody."""
    own = made.words[tenant, user_id][0]
    return {
        "tenant": tenant,
        "user_id": user_id,
        "session_id": HALL if user_id is None else f"session-{own}",
        "agent_id": AGENT,
        "trace_id": f"trace-{own}",
    }


def _more_stated(
    made: World, tenant: str, user_id: str | None, number: Iterator[int]
) -> Iterator[Event]:
    """With a third thing of the user's own, these are a community."""
    words, where = made.words[tenant, user_id], _where(made, tenant, user_id)
    vault, depot, harbour = f"{words[4]} vault", f"{words[5]} depot", f"{words[4]} harbour"
    for source, target in ((depot, harbour), (harbour, vault)):
        yield _stated(next(number), source, "depends_on", target, **where)


def _life(made: World, tenant: str, user_id: str | None, number: Iterator[int]) -> Iterator[Event]:
    """What a user says, does and states in a session of the user's own."""
    words = made.words[tenant, user_id]
    common = _where(made, tenant, user_id)
    said = f" {SHARED_WORD}" if user_id is None else ""
    yield _said(next(number), f"Please refund the lost parcel {words[1]}{said}", **common)
    yield _said(next(number), f"The refund of the lost parcel {words[2]}{said} failed", **common)
    for status in ("failed", "completed"):
        yield event(
            next(number),
            event_type="tool.call.completed",
            tool_name="charge_card",
            status=status,
            payload={"name": "charge_card", "result": {"error": f"declined {words[3]}"}},
            **common,
        )
    vault, depot, place = f"{words[4]} vault", f"{words[5]} depot", made.spelling(user_id)
    for source, relation, target in (
        (place, "depends_on", vault),
        (vault, "depends_on", depot),
        (depot, "depends_on", place),
        (vault, "has_status", f"sealed {words[3]}"),
    ):
        yield _stated(next(number), source, relation, target, **common)


def _room(
    made: World, tenant: str, people: Iterable[str | None], number: Iterator[int]
) -> Iterator[Event]:
    """What all say in one session, each answering the one before."""
    before: int | None = None
    for user_id in people:
        words, place = made.words[tenant, user_id], made.spelling(user_id)
        for word in words[1:3]:
            own = next(number)
            text = f"In {place} the refund of the lost parcel {word} is late"
            yield _said(
                own,
                text,
                tenant=tenant,
                user_id=user_id,
                session_id=ROOM,
                agent_id=AGENT,
                trace_id="trace-room",
                parent=before,
            )
            before = own


def _said(number: int, text: str, **fields: Any) -> Event:
    payload = {"role": "user", "content": text, "speaker": "guest"}
    return event(number, event_type="message.received", payload=payload, **fields)


def _stated(number: int, source: str, relation: str, target: str, **fields: Any) -> Event:
    literal = relation == "has_status"
    payload = {
        "source": {"name": source, "type": "concept"},
        "relation": relation,
        "target": target if literal else {"name": target, "type": "concept"},
        "valid_from": timestamp_text(START_MS),
    }
    return event(number, event_type="memory.fact_asserted", payload=payload, **fields)


# -- who may see what ------------------------------------------------------------------------------


@dataclass
class Nodes:
    """The nodes of a tenant by wire id, and for each whose it is.

    Attributes:
        users: of an event, a summary or a community, all from whose events it is made; of an
            entity, those who know it; None in the place of a user: of nobody. Without any user
            nobody wrote it down.
        decisions: ids of the events by which summaries and communities were decided.
        known: of entities: it is enough that one of the users may be seen.
    """

    users: dict[str, list[str | None]] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)
    scopes: dict[str, tuple[str, str]] = field(default_factory=dict)
    decisions: list[str] = field(default_factory=list)

    def seen_by(self, node_id: str, user_id: str | None) -> bool:
        """The rule."""
        users = self.users[node_id]
        judged = [user in (None, user_id) for user in users]
        return any(judged) if self.known[node_id] else bool(users) and all(judged)

    def seen(self, user_id: str | None) -> list[str]:
        return [node_id for node_id in self.users if self.seen_by(node_id, user_id)]

    def hidden(self, user_id: str | None) -> list[str]:
        return [node_id for node_id in self.users if not self.seen_by(node_id, user_id)]


_ENTITIES = """
MATCH (n:Entity {tenant: $tenant})
RETURN 'entity:' + n.entity_id,
       [(n)<-[:REFERENCES]-(e:Event) WHERE NOT e:Placeholder | e.user_id]
       + [(n)-[r:RELATES_TO]-() | r.user_id]
"""
_MADE = """
MATCH (n:{label} {{tenant: $tenant}}) WHERE NOT n:Unwritten
RETURN '{prefix}' + n.{key}, n.user_ids, {scope}, n.event_id
"""


def nodes_of(stack: Stack, made: World, tenant: str = TENANT) -> Nodes:
    """As the graph has them now; events also as the ledger has them."""
    nodes = Nodes()
    for one in made.events:
        if one.tenant == tenant:
            nodes.users[one.event_id], nodes.known[one.event_id] = [one.user_id], False
    for node_id, users in _rows(stack, _ENTITIES, tenant):
        nodes.users[node_id], nodes.known[node_id] = users, True
    for label, prefix, key, scope in (
        ("Summary", "summary:", "summary_id", "[n.scope, n.scope_id]"),
        ("Community", "community:", "community_id", "null"),
    ):
        text = _MADE.format(label=label, prefix=prefix, key=key, scope=scope)
        for node_id, users, named, decision in _rows(stack, text, tenant):
            nodes.decisions += [decision] if decision else []
            nodes.users[node_id] = [] if users is None else users or [None]
            nodes.known[node_id] = False
            if named is not None:
                nodes.scopes[node_id] = (named[0], named[1])
    return nodes


def _rows(stack: Stack, text: str, tenant: str) -> list[list[Any]]:
    with stack.driver.session() as session:
        return [list(row) for row in session.run(text, {"tenant": tenant})]


def hidden_from(
    made: World, nodes: Nodes, tenant: str, user_id: str | None, *, everyone: bool = False
) -> tuple[set[str], set[str]]:
    """What may never be in an answer: as it is written here, and in small letters.

    Args:
        made: the world.
        nodes: of TENANT.
        tenant: of the one who asks.
        user_id: whose view it is; None: nobody's.
        everyone: the view over all users of the tenant.
    """
    words = {
        word
        for (of_tenant, owner), many in made.words.items()
        for word in many
        if of_tenant != tenant or not (everyone or owner in (None, user_id))
    }
    elsewhere = {one.event_id for one in made.events if one.tenant != tenant}
    if everyone:
        return set(), words | elsewhere
    others = {own_id for own_id in made.users.values() if own_id != user_id}
    spelled = {made.spelling(own_id) for own_id in others}
    if tenant != TENANT:
        return spelled, words | elsewhere | others | _bare(nodes.users)
    # Who may see an event sees what its sender said it answers to.
    answered = {
        one.parent_event_id
        for one in made.events
        if one.tenant == tenant and nodes.seen_by(one.event_id, user_id)
    }
    hidden = _bare(nodes.hidden(user_id)) - {own_id for own_id in answered if own_id}
    return spelled, words | others | elsewhere | hidden


def _bare(node_ids: Iterable[str]) -> set[str]:
    """Ids without what says of which kind they are."""
    return {node_id.rpartition(":")[2] for node_id in node_ids}
