"""Everything that was said of one group of facts, and the intervals that follow from it.

A *group* is what one fact can contradict or confirm: (user, source, relation, edge type), and the
target too unless the relation is functional. The user is part of it because nobody may see, or
end, the facts of another person. The graph keeps the group's entries as they were said, a set of
rows; the RELATES_TO edges are computed from all of them, so neither the order of arrival nor a
second delivery changes anything.

Rules, on assertions sorted by (valid_from, event_id, ordinal):

- Of one event's assertions that begin at the same moment the last counts, for each target, and in
  a functional group for all of them: they are one statement.
- The same target again, within its interval, supports it. A stated end beats none; of several the
  latest counts. What begins at the end or later is a new interval: A → B → A keeps both of A's.
  A supporter whose event was withdrawn ends the interval only when no other is left.
- In a functional group another target ends the interval where it begins; `expired_at` is the
  position time of the assertion that ended it. Two that begin at the same moment: the later one in
  the sorting stays, the other is empty (`valid_to` = `valid_from`). A stated end that comes first
  stays as stated, and nothing expires. What was ended does not come back when its successor ends.
- A retraction that names an event withdraws what that event asserted: from the moment `at`, or,
  without one, altogether; then it never ended anything either. One that names no event ends what
  began at or before its moment (default: when it occurred). What is left of it is an empty
  interval, kept and expired: nothing is deleted, nothing asks for it at any moment.
- Confidence, source, status and words of an interval are those of its best supporter by S1's
  product (confidence by source weight by status weight), the earliest of equals: a fact scores as
  its best supporter does, however often it is repeated. The event that names the edge is the first
  supporter.

A history grows with what is said of its group (about 150 bytes each time; 10,000 take 0.3 s to fold
again). Entities that are the same keep histories of their own; who reads joins them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from enrichment.facts import FACT_STATUSES, SOURCE_KINDS, Assertion, Retraction
from enrichment.vocabulary import EdgeType, is_functional
from projections.identity import SEPARATOR
from projections.schema import MAX_SUPPORTING

HISTORY_ID_BYTES = 16
SOURCE_WEIGHTS: Final = dict(zip(SOURCE_KINDS, (20, 15, 12, 10), strict=True))
"""S1's, times 10, so that products stay integers."""
STATUS_WEIGHTS: Final = dict(zip(FACT_STATUSES, (10, 12), strict=True))

_ASSERTED, _RETRACTED = "a", "r"


class Group(NamedTuple):
    """What a FactHistory is about. `target_id` is None in a functional group."""

    tenant: str
    user_id: str | None
    source_id: str
    relation: str
    edge_type: EdgeType
    target_id: str | None

    @property
    def history_id(self) -> str:
        """Key of the FactHistory within its tenant."""
        # absent and present parts differ by their first letter, so no name can pass for absence
        parts = ["-" if part is None else f"+{part}" for part in self]
        digest = blake2b(SEPARATOR.join(parts).encode(), digest_size=HISTORY_ID_BYTES)
        return digest.hexdigest()


class Fact(NamedTuple):
    """One RELATES_TO edge: a fact over one interval. Times are milliseconds since the epoch.

    Attributes:
        valid_to_ms: exclusive; None: open. Equal to `valid_from_ms`: withdrawn or overtaken.
        expired_at_ms: position time of what ended it; None: not ended, or ended as stated.
        event_id: the first supporter, part of the edge's key.
        supporting_event_ids: the last 20 supporters.
        support_count: all of them.
    """

    source_id: str
    relation: str
    edge_type: EdgeType
    target_id: str
    valid_from_ms: int
    valid_to_ms: int | None
    expired_at_ms: int | None
    confidence: int
    fact: str
    source_kind: str
    status: str
    user_id: str | None
    event_id: str
    supporting_event_ids: tuple[str, ...]
    support_count: int


def group_of(assertion: Assertion) -> Group:
    """The group that an assertion belongs to.

    Outside the table of relations the flag is part of the group: what is said with it and what is
    said without are two groups, so that the flag never reaches back over what others said.
    """
    functional = is_functional(assertion.relation, assertion.functional)
    return Group(
        tenant=assertion.tenant,
        user_id=assertion.user_id,
        source_id=assertion.source_id,
        relation=assertion.relation,
        edge_type=assertion.edge_type,
        target_id=None if functional else assertion.target_id,
    )


def groups_of(retraction: Retraction) -> list[Group]:
    """The groups a retraction is kept in: it need not know how the fact was flagged."""
    functional = Group(*retraction[:5], None)
    if retraction.target_id is None or is_functional(retraction.relation):
        return [functional]
    by_target = functional._replace(target_id=retraction.target_id)
    # in the table and not functional: nothing can be in the other group
    return [functional, by_target] if is_functional(retraction.relation, True) else [by_target]


def entry_of(statement: Assertion | Retraction) -> str:
    """The row that a FactHistory keeps of it: a compact JSON list."""
    if isinstance(statement, Retraction):
        row: list[Any] = [
            _RETRACTED,
            statement.event_id,
            statement.ordinal,
            statement.at_ms,
            statement.target_id,
            statement.asserted_by,
            statement.position_ms,
        ]
    else:
        row = [
            _ASSERTED,
            statement.event_id,
            statement.ordinal,
            statement.valid_from_ms,
            statement.target_id,
            statement.valid_to_ms,
            statement.position_ms,
            statement.confidence,
            statement.source_kind,
            statement.status,
            statement.fact,
        ]
        if statement.confirmed_by is not None:
            row.append(statement.confirmed_by)
    return orjson.dumps(row).decode()


def merge(entries: Iterable[str], new: Iterable[str] = (), gone: Iterable[str] = ()) -> list[str]:
    """The union of two sets of rows, one for each (kind, event, ordinal), in one order.

    Rows that are `gone` are left out: a late event shows that what they say did not come about.

    The same event gives the same row. Should it not (its payload could not be read the first
    time), the larger row stays, so that the outcome does not depend on which came first.
    """
    rows: dict[tuple[Any, ...], str] = {}
    left_out = frozenset(gone)
    for entry in (*(entry for entry in entries if entry not in left_out), *new):
        key = tuple(orjson.loads(entry)[:3])
        rows[key] = max(entry, rows.get(key, entry))
    return [rows[key] for key in sorted(rows)]


class _Asserted(NamedTuple):
    """An assertion of the group; sorts as the rules say."""

    valid_from_ms: int
    event_id: str
    ordinal: int
    target_id: str
    valid_to_ms: int | None
    position_ms: int
    confidence: int
    source_kind: str
    status: str
    fact: str
    confirmed_by: str | None = None

    @property
    def events(self) -> tuple[str, ...]:
        """That say so."""
        return (self.event_id,) if self.confirmed_by is None else (self.event_id, self.confirmed_by)

    @property
    def weight(self) -> int:
        return self.confidence * SOURCE_WEIGHTS[self.source_kind] * STATUS_WEIGHTS[self.status]


class _Withdrawn(NamedTuple):
    event_id: str
    ordinal: int
    at_ms: int | None
    target_id: str | None
    asserted_by: str | None
    position_ms: int


class _End(NamedTuple):
    """Where an assertion ends by itself.

    Attributes:
        at_ms: None: open.
        expired_at_ms: position time of the retraction that ends it.
        alone: only this assertion ends there (its event was withdrawn), not what others support.
    """

    at_ms: int | None
    expired_at_ms: int | None = None
    alone: bool = False


class _Interval:
    """An interval as it grows."""

    def __init__(self, assertion: _Asserted, end: _End) -> None:
        self.target_id = assertion.target_id
        self.begins_ms = assertion.valid_from_ms
        self.supporters = [assertion]
        self.end = end

    def holds(self, assertion: _Asserted) -> bool:
        """Whether what is said begins within the interval."""
        return self.end.at_ms is None or assertion.valid_from_ms < self.end.at_ms

    def support(self, assertion: _Asserted, end: _End) -> None:
        self.supporters.append(assertion)
        if end.alone != self.end.alone:
            self.end = self.end if end.alone else end
        elif end.at_ms is not None and (self.end.at_ms is None or end.at_ms >= self.end.at_ms):
            if end.at_ms == self.end.at_ms and self.end.expired_at_ms is not None:
                return  # both end at one moment: the first of them tells by what
            self.end = end

    def overtake(self, by: _Asserted) -> None:
        if self.end.at_ms is None or self.end.at_ms > by.valid_from_ms:
            self.end = _End(by.valid_from_ms, by.position_ms)

    def fact(self, group: Group) -> Fact:
        first = self.supporters[0]
        best = max(self.supporters, key=lambda supporter: supporter.weight)  # the first of equals
        supporting = list(
            dict.fromkeys(event for supporter in self.supporters for event in supporter.events)
        )
        return Fact(
            source_id=group.source_id,
            relation=group.relation,
            edge_type=group.edge_type,
            target_id=self.target_id,
            valid_from_ms=self.begins_ms,
            valid_to_ms=self.end.at_ms,
            expired_at_ms=self.end.expired_at_ms,
            confidence=best.confidence,
            fact=best.fact,
            source_kind=best.source_kind,
            status=best.status,
            user_id=group.user_id,
            event_id=first.event_id,
            supporting_event_ids=tuple(supporting[-MAX_SUPPORTING:]),
            support_count=len(supporting),
        )


def intervals(group: Group, entries: Iterable[str]) -> list[Fact]:
    """The edges of a group, sorted by (valid_from, event, target); entries in any order.

    Raises:
        ValueError: for a row that `entry_of` did not write.
    """
    assertions, withdrawn = _read(merge(entries))
    chains: dict[str, list[_Asserted]] = {}
    for assertion in _latest_of_each_event(assertions, functional=group.target_id is None):
        chains.setdefault("" if group.target_id is None else assertion.target_id, []).append(
            assertion
        )
    grown: list[_Interval] = []
    for chain in chains.values():
        grown.extend(_sweep(chain, withdrawn))
    facts = [interval.fact(group) for interval in grown]
    return sorted(facts, key=lambda f: (f.valid_from_ms, f.event_id, f.target_id))


def _read(entries: Sequence[str]) -> tuple[list[_Asserted], list[_Withdrawn]]:
    assertions, withdrawn = [], []
    for entry in entries:
        row = orjson.loads(entry)
        if row[0] == _ASSERTED and len(row) in (11, 12):
            _, event_id, ordinal, valid_from_ms, *fields = row
            assertions.append(_Asserted(valid_from_ms, event_id, ordinal, *fields))
        elif row[0] == _RETRACTED and len(row) == 7:
            withdrawn.append(_Withdrawn(*row[1:]))
        else:
            raise ValueError(f"not a row of a fact history: {entry[:80]}")
    # of two that end something at one moment, the one that the ledger had first tells when
    withdrawn.sort(
        key=lambda retraction: (retraction.position_ms, retraction.event_id, retraction.ordinal)
    )
    return assertions, withdrawn


def _latest_of_each_event(assertions: Iterable[_Asserted], *, functional: bool) -> list[_Asserted]:
    """The last assertion of each event that begins at one moment, sorted."""
    last: dict[tuple[Any, ...], _Asserted] = {}
    for assertion in sorted(assertions):
        last[
            assertion.valid_from_ms, assertion.event_id, "" if functional else assertion.target_id
        ] = assertion
    return sorted(last.values())


def _sweep(chain: Sequence[_Asserted], withdrawn: Sequence[_Withdrawn]) -> list[_Interval]:
    """The intervals of assertions that stand in one line, sorted."""
    grown: list[_Interval] = []
    current: _Interval | None = None
    for assertion in chain:
        end = _end(assertion, withdrawn)
        if end.at_ms is not None and end.at_ms <= assertion.valid_from_ms:
            grown.append(_Interval(assertion, end))
            continue
        if current and current.target_id == assertion.target_id and current.holds(assertion):
            current.support(assertion, end)
            continue
        if current and current.target_id != assertion.target_id:
            current.overtake(assertion)
        current = _Interval(assertion, end)
        grown.append(current)
    return grown


def _end(assertion: _Asserted, withdrawn: Sequence[_Withdrawn]) -> _End:
    """Where one assertion ends, as stated or by a retraction, whichever is first."""
    end = _End(assertion.valid_to_ms)
    for retraction in withdrawn:
        if retraction.target_id not in (None, assertion.target_id):
            continue
        if retraction.asserted_by is not None:
            if retraction.asserted_by not in assertion.events:
                continue
            at_ms = assertion.valid_from_ms if retraction.at_ms is None else retraction.at_ms
        elif retraction.at_ms is None or assertion.valid_from_ms > retraction.at_ms:
            continue
        else:
            at_ms = retraction.at_ms
        at_ms = max(at_ms, assertion.valid_from_ms)
        if end.at_ms is None or at_ms < end.at_ms:
            end = _End(at_ms, retraction.position_ms, alone=retraction.asserted_by is not None)
    return end
