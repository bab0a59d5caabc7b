"""Which events are forgotten, and why the others stay.

Nothing is, unless it is switched on. Then age decides the tier, and the tier what may go: hot keeps
everything; from warm on an event keeps its `similar_keep` best SIMILAR_TO; cold keeps events that
are important or asked for; archive keeps those that are very important or much asked for: age alone
takes none of them. In every tier an event stays until a recorded Summary lists it, and as long as
at least `protected_in_degree` retained events go back to it (CAUSED_BY).

That last rule looks at what is left: an effect that leaves protects its cause no longer. So it is
settled at once for all events that are given together (`verdicts`), and a second look at what
stayed finds nothing more to forget.

A class of events, by `consent_ref`, may have days of its own: behind these its events leave,
whatever would keep them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from math import isfinite
from typing import Any, Final, NamedTuple

from consolidation.decay import DAY_MS, HIGHEST_IMPORTANCE, HOUR_MS
from projections.errors import InvalidInput
from projections.times import timestamp_text

EXAMPLES: Final = 3
"""Of a row of the dry run."""

CLASS_MARK: Final = "*"
"""Ends the name of a class: of all consents that begin like it."""


def is_of_class(consent_ref: str, name: str) -> bool:
    """Whether a consent is the one that is named, or is of the class."""
    if name.endswith(CLASS_MARK):
        return consent_ref.startswith(name.removesuffix(CLASS_MARK))
    return consent_ref == name


class Tier(StrEnum):
    """How old an event is; a boundary belongs to the older tier."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"
    ARCHIVE = "archive"


TIERS: Final = tuple(Tier)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The settings of forgetting, of all tenants or of one.

    Attributes:
        enabled: False: nothing is forgotten, archived or expired.
        warm_after_h: age at which hot becomes warm, hours, above 0.
        cold_after_h: age at which warm becomes cold, at least `warm_after_h`.
        archive_after_h: age at which cold becomes archive, at least `cold_after_h`.
        similar_keep: SIMILAR_TO that an event keeps from warm on, its best ones.
        similar_score: those that score less go from warm on, best or not (plain cosine).
        cold_min_importance: as shown, boost included, from which a cold event stays.
        cold_min_accesses: from which a cold event stays.
        archive_min_importance: as shown, from which an event stays however old it is.
        archive_min_accesses: from which an event stays however old it is.
        protected_in_degree: retained effects from which an event stays, in every tier.
        entity_min_accesses: from which an entity without edges is not archived.
        fact_min_confidence: effective confidence from which a fact that ended is not expired.
        expire_after_days: by `consent_ref`, or by what it begins with (`research*`), after how many
            days an event leaves, whatever would keep it, and whether or not `enabled`.

    Raises:
        InvalidInput: with every broken rule, by field (`retention.cold_after_h`).
    """

    enabled: bool = True
    warm_after_h: float = 24
    cold_after_h: float = 7 * 24
    archive_after_h: float = 30 * 24
    similar_keep: int = 3
    similar_score: float = 0.7
    cold_min_importance: float = 5
    cold_min_accesses: int = 3
    archive_min_importance: float = 8
    archive_min_accesses: int = 10
    protected_in_degree: int = 3
    entity_min_accesses: int = 3
    fact_min_confidence: float = 0.1
    expire_after_days: Mapping[str, float] = field(default_factory=dict)

    def expires_ms(self, event: RetainedEvent) -> int | None:
        """When an event leaves for its class alone; None: it has no class that expires."""
        consent = event.consent_ref
        if consent is None or not self.expire_after_days:
            return None
        days = (
            limit for name, limit in self.expire_after_days.items() if is_of_class(consent, name)
        )
        least = min(days, default=None)
        return None if least is None else event.occurred_at_ms + round(least * DAY_MS)

    def __post_init__(self) -> None:
        errors = _broken_rules(asdict(self))
        if errors:
            raise InvalidInput(tuple(errors))

    def with_overrides(self, overrides: Mapping[str, Any]) -> RetentionPolicy:
        """This policy with the settings that a tenant has of its own.

        Raises:
            InvalidInput: with every unknown name and every broken rule, by field.
        """
        names = {field.name for field in fields(self)}
        errors = [(f"retention.{str(n)[:80]}", "unknown") for n in overrides if n not in names]
        changed = {name: value for name, value in overrides.items() if name in names}
        errors.extend(_broken_rules({**asdict(self), **changed}))
        if errors:
            raise InvalidInput(tuple(errors))
        return replace(self, **changed)


_COUNTS: Final = {
    "similar_keep": 0,
    "cold_min_accesses": 0,
    "archive_min_accesses": 0,
    "protected_in_degree": 1,  # of 0 every event is protected, which `enabled` says more clearly
    "entity_min_accesses": 0,
}
_MAX_COUNT: Final = 1_000_000
_NUMBERS: Final = {
    "similar_score": (-1, 1),
    "cold_min_importance": (0, HIGHEST_IMPORTANCE + 1),
    "archive_min_importance": (0, HIGHEST_IMPORTANCE + 1),
    "fact_min_confidence": (0, 1),
}
_AGES: Final = ("warm_after_h", "cold_after_h", "archive_after_h")
_MAX_AGE_H: Final = 24 * 366 * 1_000


def _broken_rules(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    errors = []
    if not isinstance(values["enabled"], bool):
        errors.append(("enabled", "true or false"))
    for name, least in _COUNTS.items():
        if type(values[name]) is not int or not least <= values[name] <= _MAX_COUNT:
            errors.append((name, f"an integer from {least} to {_MAX_COUNT:,}"))
    for name, (lowest, highest) in _NUMBERS.items():
        if not _is_number(values[name]) or not lowest <= values[name] <= highest:
            errors.append((name, f"a number from {lowest} to {highest}"))
    before, least_h = None, 0.0
    for name in _AGES:
        hours = values[name]
        if not _is_number(hours) or not 0 < hours <= _MAX_AGE_H:
            errors.append((name, f"hours above 0, at most {_MAX_AGE_H:,}"))
        elif hours < least_h:
            errors.append((name, f"at least {before} ({least_h:g})"))
        else:
            before, least_h = name, hours
    classes = values["expire_after_days"]
    if not isinstance(classes, Mapping):
        errors.append(("expire_after_days", "an object of days by consent_ref"))
    else:
        errors += [
            (f"expire_after_days.{str(name)[:80]}", f"days above 0, at most {_MAX_AGE_H // 24:,}")
            for name, days in classes.items()
            if not _is_number(days) or not 0 < days <= _MAX_AGE_H // 24
        ]
    return [(f"retention.{name}", rule) for name, rule in errors]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


DEFAULT_POLICY: Final = RetentionPolicy()
KEEPS_EVERYTHING: Final = RetentionPolicy(enabled=False)
"""Of a tenant for whom nobody has switched forgetting on: what is forgotten no question finds."""


# -- tiers -----------------------------------------------------------------------------------------


def age_ms(
    now_ms: int, occurred_at_ms: int, arrived_ms: int, last_access_ms: int | None = None
) -> int:
    """The age that decides the tier, milliseconds; negative for what occurs later.

    From the latest of occurrence, arrival and last access, so that an imported history is not
    forgotten on arrival. When the clock stands before the arrival, as it does where a history is
    consolidated as of its own time, from the occurrence alone.

    Args:
        now_ms: the clock.
        occurred_at_ms: when the event occurred.
        arrived_ms: when the ledger took it in.
        last_access_ms: when a read returned it last; None: never.
    """
    if now_ms < arrived_ms:
        return now_ms - occurred_at_ms
    since_ms = max(occurred_at_ms, arrived_ms)
    return now_ms - (since_ms if last_access_ms is None else max(since_ms, last_access_ms))


def tier_of(
    now_ms: int,
    occurred_at_ms: int,
    arrived_ms: int,
    last_access_ms: int | None = None,
    policy: RetentionPolicy = DEFAULT_POLICY,
) -> Tier:
    """The tier of an event; see `age_ms`. Exactly 24 h old is warm already."""
    age_h = age_ms(now_ms, occurred_at_ms, arrived_ms, last_access_ms) / HOUR_MS
    if age_h < policy.warm_after_h:
        return Tier.HOT
    if age_h < policy.cold_after_h:
        return Tier.WARM
    return Tier.COLD if age_h < policy.archive_after_h else Tier.ARCHIVE


# -- events ----------------------------------------------------------------------------------------


class RetainedEvent(NamedTuple):
    """What forgetting asks of an event of the graph.

    Attributes:
        event_id: within the tenant.
        occurred_at_ms: when it occurred.
        arrived_ms: when the ledger took it in.
        last_access_ms: when a read returned it last; None: never.
        access_count: how many reads returned it.
        importance: 1 to 10.
        boost: of the importance.
        causal_in_degree: different retained events that have a CAUSED_BY to it, of any mechanism.
        causes: different events that it has a CAUSED_BY to itself.
        summary_id: of a recorded Summary that lists it; None: no such one.
        consent_ref: that it came under; None: none.
    """

    event_id: str
    occurred_at_ms: int
    arrived_ms: int
    last_access_ms: int | None = None
    access_count: int = 0
    importance: int = 5
    boost: float = 0.0
    causal_in_degree: int = 0
    causes: tuple[str, ...] = ()
    summary_id: str | None = None
    consent_ref: str | None = None

    @property
    def shown_importance(self) -> float:
        """Importance with the boost, 1 to 10."""
        return min(float(HIGHEST_IMPORTANCE), self.importance + self.boost)


class Reason(StrEnum):
    """Why an event leaves or stays, as a row of the dry run says it."""

    EXPIRED = "its class expires"
    OLD = "older than the archive limit"
    UNASKED = "cold, neither important nor asked for"
    DISABLED = "forgetting is switched off"
    YOUNG = "younger than the cold limit"
    IMPORTANT = "important enough"
    ACCESSED = "asked for often enough"
    CAUSE = "on a live causal path"
    UNSUMMARISED = "no summary lists it"


class Verdict(NamedTuple):
    """Whether an event leaves.

    Attributes:
        tier: at the moment of the verdict.
        leaves: from the graph.
        reason: what decided.
        detail: the same with the event's numbers.
        summary_id: that keeps its id.
    """

    event_id: str
    tier: Tier
    leaves: bool
    reason: Reason
    detail: str
    summary_id: str | None


class Departure(NamedTuple):
    """An event that leaves: its tier, why, and the Summary that keeps its id, if one does."""

    event_id: str
    tier: Tier
    reason: str
    summary_id: str | None


def verdict(event: RetainedEvent, policy: RetentionPolicy, now_ms: int) -> Verdict:
    """Whether one event leaves, with all its effects retained.

    That no summary lists it is looked at last, so that the dry run tells what would go once it is
    summarised.
    """
    tier = tier_of(
        now_ms,
        event.occurred_at_ms,
        event.arrived_ms,
        event.last_access_ms,
        policy=policy,
    )
    expires_ms = policy.expires_ms(event)
    if expires_ms is not None and expires_ms <= now_ms:
        detail = f"{event.consent_ref} expired {timestamp_text(expires_ms)}"
        # of the two tiers that leave; what a class expires has no age that matters
        left = Tier.COLD if tier in (Tier.HOT, Tier.WARM) else tier
        return Verdict(
            event_id=event.event_id,
            tier=left,
            leaves=True,
            reason=Reason.EXPIRED,
            detail=detail,
            summary_id=event.summary_id,
        )
    leaves, reason, detail = _judged(event, tier, policy)
    return Verdict(
        event_id=event.event_id,
        tier=tier,
        leaves=leaves,
        reason=reason,
        detail=detail,
        summary_id=event.summary_id,
    )


def _judged(event: RetainedEvent, tier: Tier, policy: RetentionPolicy) -> tuple[bool, Reason, str]:
    if not policy.enabled:
        return False, Reason.DISABLED, Reason.DISABLED
    if tier in (Tier.HOT, Tier.WARM):
        return False, Reason.YOUNG, f"{tier}: below {policy.cold_after_h:g} h"
    importance, accesses, effects = (
        event.shown_importance,
        event.access_count,
        event.causal_in_degree,
    )
    if effects >= policy.protected_in_degree:
        return False, Reason.CAUSE, f"cause of {effects} (from {policy.protected_in_degree} on)"
    enough_importance, enough_accesses = _enough(tier, policy)
    if importance >= enough_importance:
        detail = f"importance {importance:g} (from {enough_importance:g} on)"
        return False, Reason.IMPORTANT, detail
    if accesses >= enough_accesses:
        return False, Reason.ACCESSED, f"{accesses} accesses (from {enough_accesses} on)"
    if event.summary_id is None:
        return False, Reason.UNSUMMARISED, f"{tier}, but no summary lists it"
    if tier is Tier.ARCHIVE:
        return True, Reason.OLD, f"archive: {policy.archive_after_h:g} h or older"
    return (
        True,
        Reason.UNASKED,
        f"cold: importance {importance:g} below {policy.cold_min_importance:g}, "
        f"{accesses} accesses below {policy.cold_min_accesses}",
    )


def _enough(tier: Tier, policy: RetentionPolicy) -> tuple[float, int]:
    """Importance and accesses, of which either keeps an event in its tier.

    What keeps an old event keeps a younger one too, whatever the settings of the younger tier.
    """
    oldest = policy.archive_min_importance, policy.archive_min_accesses
    if tier is Tier.ARCHIVE:
        return oldest
    return (
        min(oldest[0], policy.cold_min_importance),
        min(oldest[1], policy.cold_min_accesses),
    )


def verdicts(
    events: Iterable[RetainedEvent], policy: RetentionPolicy, now_ms: int
) -> list[Verdict]:
    """What becomes of events of one tenant, by event id.

    An effect that leaves is no longer counted for its causes, and those are judged again, until
    nothing changes: the outcome is the one largest set that may leave, in whatever order it is
    looked for. Effects that are not among the events count as retained, so what is causally
    connected belongs into one call.

    Args:
        events: each once.
        policy: of the tenant.
        now_ms: the clock.
    """
    given = {event.event_id: event for event in events}
    judged = {key: verdict(event, policy, now_ms) for key, event in given.items()}
    leaving = [key for key, judgement in judged.items() if judgement.leaves]
    while leaving:
        for cause in set(given[leaving.pop()].causes):
            event = given.get(cause)
            if event is None:
                continue
            given[cause] = event._replace(causal_in_degree=event.causal_in_degree - 1)
            if judged[cause].reason is Reason.CAUSE:
                judged[cause] = verdict(given[cause], policy, now_ms)
                if judged[cause].leaves:
                    leaving.append(cause)
    return sorted(judged.values())


def departures(judged: Iterable[Verdict]) -> list[Departure]:
    """The events that leave by these verdicts, by summary and event id."""
    leaving = [
        Departure(judgement.event_id, judgement.tier, judgement.detail, judgement.summary_id)
        for judgement in judged
        if judgement.leaves
    ]
    return sorted(leaving, key=lambda departure: (departure.summary_id or "", departure.event_id))


# -- dry run ---------------------------------------------------------------------------------------


class ExplainedRow(NamedTuple):
    """A row of the dry run: how many events of a tier leave or stay for a reason, and some of them.

    Attributes:
        events: how many.
        examples: `event id: detail`, at most EXAMPLES, the first by event id.
    """

    leaves: bool
    tier: Tier
    reason: Reason
    events: int
    examples: tuple[str, ...]


def explain(judged: Iterable[Verdict]) -> list[ExplainedRow]:
    """What a pass would forget and what not: what leaves first, then by tier and reason."""
    counts: Counter[tuple[bool, int, Reason]] = Counter()
    first: dict[tuple[bool, int, Reason], list[Verdict]] = {}
    for judgement in judged:
        group = (not judgement.leaves, TIERS.index(judgement.tier), judgement.reason)
        counts[group] += 1
        first[group] = sorted([*first.get(group, ()), judgement])[:EXAMPLES]
    return [
        ExplainedRow(
            leaves=not stays,
            tier=TIERS[tier],
            reason=reason,
            events=counts[stays, tier, reason],
            examples=tuple(f"{member.event_id}: {member.detail}" for member in members),
        )
        for (stays, tier, reason), members in sorted(first.items())
    ]


class Judging:
    """Together the verdicts are those of `retention.verdicts` on all events at once.

    Args:
        policy: of the tenant.
        now_ms: the clock.
    """

    def __init__(self, policy: RetentionPolicy, now_ms: int) -> None:
        self._policy = policy
        self._now_ms = now_ms
        self._waiting: list[RetainedEvent] = []

    def judge(self, events: Iterable[RetainedEvent]) -> list[Verdict]:
        """Verdicts on those events that wait for nobody, in their order.

        Args:
            events: each once; `causes` may leave out those with fewer effects than protect them.
        """
        settled = []
        for event in events:
            judgement = verdict(event, self._policy, self._now_ms)
            if judgement.reason is Reason.CAUSE or (judgement.leaves and event.causes):
                self._waiting.append(event)
            else:
                settled.append(judgement)
        return settled

    def rest(self) -> list[Verdict]:
        """Verdicts on the others, once all events were read; by event id."""
        waiting, self._waiting = self._waiting, []
        return verdicts(waiting, self._policy, self._now_ms)
