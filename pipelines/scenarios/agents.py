"""Sessions of agents as they go: requests, calls that fail and are tried again, wishes, replies.

Made up, and the same at every run with one seed. Each is about something with an id of its own, so
that a question about it has one answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

FAILS: Final = 0.15
"""The share of calls that fail at the first try."""
TRIED_AGAIN: Final = 0.8
"""The share of these that work at the second."""
WISHES: Final = 0.2
"""The share of sessions in which the user says how they want things."""


class Step(NamedTuple):
    """Something that happens; `kind` and `content` as the client's `log` takes them."""

    kind: str
    content: Any
    tool: str | None = None


class Story(NamedTuple):
    """A session from its first word to its last.

    Attributes:
        session_id: that no other story of the seed has.
        agent: who acts.
        user: for whom.
        steps: in order.
        questions: that somebody may ask afterwards.
    """

    session_id: str
    agent: str
    user: str
    steps: tuple[Step, ...]
    questions: tuple[str, ...]


class _Act(NamedTuple):
    """A tool that is called: arguments, what comes back, and how it fails."""

    tool: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]
    error: str
    kind: str


class _Job(NamedTuple):
    """What an agent is there for; `{thing}` stands for what it is about."""

    agent: str
    prefix: str
    requests: Sequence[str]
    acts: Sequence[_Act]
    decision: str
    reply: str


_JOBS: Final = (
    _Job(
        agent="payments",
        prefix="order A-",
        requests=(
            "My card was charged twice for {thing}, please send one of them back.",
            "I cancelled {thing} last week and still see the charge.",
            "The amount of {thing} is not what the shop said.",
        ),
        acts=(
            _Act(
                "list_charges",
                {"order_id": "{thing}"},
                {"charges": 2, "amount": 84, "currency": "EUR"},
                error="gateway did not answer within 3 s",
                kind="GatewayTimeout",
            ),
            _Act(
                "refund_charge",
                {"order_id": "{thing}", "amount": 84},
                {"order_id": "{thing}", "status": "refunded"},
                error="charge of {thing} is disputed",
                kind="RefundRefused",
            ),
        ),
        decision="The second charge of {thing} is refunded, because the first one settled",
        reply="I have refunded the second charge of {thing}.",
    ),
    _Job(
        agent="travel",
        prefix="booking B-",
        requests=(
            "Please move {thing} to the early train on Monday.",
            "I have to change the name on {thing}.",
            "Is there a window seat left for {thing}?",
        ),
        acts=(
            _Act(
                "find_seats",
                {"booking_id": "{thing}", "class": "second"},
                {"seats": ["12A", "14F"]},
                error="no timetable for that day",
                kind="NoTimetable",
            ),
            _Act(
                "change_booking",
                {"booking_id": "{thing}", "seat": "12A"},
                {"booking_id": "{thing}", "seat": "12A", "status": "changed"},
                error="the fare of {thing} allows no change",
                kind="FareRule",
            ),
        ),
        decision="Seat 12A is taken for {thing}: it is by the window and costs no more",
        reply="{thing} is changed: seat 12A, by the window.",
    ),
    _Job(
        agent="deployer",
        prefix="release R-",
        requests=(
            "Roll {thing} out to the checkout service.",
            "{thing} made checkout slow, take it back.",
            "Which settings does {thing} change?",
        ),
        acts=(
            _Act(
                "read_config",
                {"release": "{thing}", "service": "checkout"},
                {"timeout_s": 3, "retries": 2},
                error="the configuration server is busy (HTTP 503)",
                kind="ServerBusy",
            ),
            _Act(
                "deploy",
                {"release": "{thing}", "service": "checkout"},
                {"release": "{thing}", "status": "running"},
                error="health check of {thing} failed after 30 s",
                kind="HealthCheckFailed",
            ),
            _Act(
                "watch_errors",
                {"release": "{thing}", "minutes": 5},
                {"errors": 0},
                error="metrics of {thing} are not there yet",
                kind="NoMetrics",
            ),
        ),
        decision="{thing} stays: five minutes without an error",
        reply="{thing} runs on checkout, without errors so far.",
    ),
    _Job(
        agent="helpdesk",
        prefix="ticket T-",
        requests=(
            "I cannot sign in since this morning, it is {thing}.",
            "The export of {thing} is empty.",
            "Who works on {thing}?",
        ),
        acts=(
            _Act(
                "search_help",
                {"query": "sign in", "ticket_id": "{thing}"},
                {"articles": ["reset a password", "browsers that work"]},
                error="the search is being indexed",
                kind="NotReady",
            ),
            _Act(
                "update_ticket",
                {"ticket_id": "{thing}", "status": "solved"},
                {"ticket_id": "{thing}", "status": "solved"},
                error="{thing} is locked by somebody else",
                kind="Locked",
            ),
        ),
        decision="{thing} is a password that ran out, as with three others today",
        reply="{thing} is solved: your password had run out.",
    ),
)
_WISHES: Final = (
    "I prefer short answers.",
    "Please always write to me by email.",
    "Never call me before noon, I work at night.",
    "I prefer the window seat.",
    "Please show prices in euros.",
)


def stories(seed: int = 1, *, users: int = 20) -> Iterator[Story]:
    """Sessions without end.

    Args:
        seed: of all that is by chance.
        users: how many different people there are.
    """
    rng = random.Random(seed)
    number = 0
    while True:
        number += 1
        job = rng.choice(_JOBS)
        thing = f"{job.prefix}{seed}{number:05}"
        user = f"user-{rng.randrange(users):03}"
        steps = [Step("user", _said(rng.choice(job.requests), thing))]
        if rng.random() < WISHES:
            steps.append(Step("user", rng.choice(_WISHES)))
        failed = None
        for act in job.acts:
            tried = list(_tried(act, thing, rng))
            steps += tried
            if tried[-1].kind == "failure":
                failed = act
                break
        steps += _ending(job, thing, failed)
        questions = (
            f"What was done for {thing}?",
            f"Why did {failed.tool if failed else job.acts[-1].tool} fail for {thing}?",
            f"What does {user} prefer?",
            f"Which tools were called for {thing}?",
        )
        session_id = f"{job.agent}-{seed}-{number:05}"
        yield Story(session_id, job.agent, user, steps=tuple(steps), questions=questions)


def _tried(act: _Act, thing: str, rng: random.Random) -> Iterator[Step]:
    """A call and what came of it; once more after a failure."""
    arguments = _filled(act.arguments, thing)
    fails = rng.random() < FAILS
    yield Step("call", arguments, act.tool)
    if fails:
        error = {"error": _said(act.error, thing), "exception_type": act.kind}
        yield Step("failure", error, act.tool)
        yield Step("thought", f"{act.tool} failed; once more, with a longer wait")
        yield Step("call", {**arguments, "attempt": 2}, act.tool)
        if rng.random() >= TRIED_AGAIN:
            yield Step("failure", error, act.tool)
            return
    yield Step("result", _filled(act.result, thing), act.tool)


def _ending(job: _Job, thing: str, failed: _Act | None) -> Iterator[Step]:
    if failed is not None:
        yield Step("decision", f"A person has to look at {thing}: {failed.tool} failed twice")
        yield Step("assistant", f"I could not finish {thing}, a colleague will call you.")
        return
    yield Step("decision", _said(job.decision, thing))
    yield Step("assistant", _said(job.reply, thing))


def _said(text: str, thing: str) -> str:
    return text.replace("{thing}", thing)


def _filled(values: Mapping[str, Any], thing: str) -> dict[str, Any]:
    """With the id of the thing: what stands behind the word for its sort."""
    own_id = thing.rpartition(" ")[2]
    return {
        name: value.replace("{thing}", own_id) if isinstance(value, str) else value
        for name, value in values.items()
    }
