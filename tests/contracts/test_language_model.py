"""The language model on a server that misbehaves: it degrades, is counted, and never raises."""

from __future__ import annotations

import json
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from enrichment.derived import Derived
from enrichment.model_answers import same_by_model, with_answers
from enrichment.ports import Analysis
from enrichment.prompts import PROMPTS, Task
from enrichment.resolution import Candidate, KnownEntity
from enrichment.stage import derive_event
from enrichment.text import event_text
from pipelines.models.chat_completions import ChatCompletions
from pipelines.models.derivations import Derivations, SqliteStore
from pipelines.models.llm import FAILURES, FIRST_PAUSE_S, Breaker, ChatModel, make_language_model
from pipelines.observe import logs, metrics
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, Stopped
from projections.identity import Position
from tests.factories import event
from tests.fakes.chat_server import (
    Behaviour,
    ChatServer,
    breaks_off,
    chat_server,
    drips,
    drips_headers,
    floods,
    hangs,
    nobody_listens,
    says,
    sends,
    talks_nonsense,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
SOON_S = 15.0
SECRET = "sk-this-is-the-secret-key"
SAME = {"same": True, "confidence": 0.9}
PAIR = {"entities": [{"name": "ibm"}, {"name": "i.b.m."}]}


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Derivations]:
    made = Derivations(SqliteStore(tmp_path / "derivations.sqlite"))
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(says(SAME)) as running:
        yield running


@pytest.fixture
def model(server: ChatServer, kept: Derivations) -> Iterator[Callable[..., ChatModel]]:
    made: list[ChatModel] = []

    def make(url: str | None = None, timeout_s: float = 30.0, **options: Any) -> ChatModel:
        asking = ChatCompletions(
            url or server.url,
            "tiny",
            SecretStr(SECRET),
            timeout_s=timeout_s,
            response_format=options.pop("response_format", "json_schema"),
        )
        name = options.pop("name", "tiny")
        options.setdefault("sleep", lambda seconds: None)
        made.append(ChatModel(asking, name, kept, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def outcomes() -> dict[str, float]:
    """The counters, and how often enrichment went without."""
    found = {
        sample.labels["outcome"]: sample.value
        for metric in metrics.LLM_QUESTIONS.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    return {**found, "degraded": metrics.DEGRADED.labels(kind="llm")._value.get()}


class Counted:
    """What was counted since it was made; zeros are left out."""

    def __init__(self) -> None:
        self._before = outcomes()

    def __call__(self) -> dict[str, float]:
        now = outcomes()
        return {name: now[name] - was for name, was in self._before.items() if now[name] != was}


@pytest.fixture
def counted() -> Counted:
    return Counted()


def ask(model: ChatModel, number: int = 0) -> dict[str, Any] | None:
    return model.answer("disambiguation", {"entities": [{"name": f"a{number}"}, {"name": "b"}]})


def test_an_answer_comes_back_validated_and_is_counted(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    server.does(says({"same": True, "confidence": 0.91239, "because": "I know"}))
    assert model().answer("disambiguation", PAIR) == {"same": True, "confidence": 0.9124}
    assert counted() == {"answered": 1}
    (sent,) = server.asked
    assert sent["model"] == "tiny"
    assert sent["response_format"]["json_schema"]["schema"] == PROMPTS["disambiguation"].schema
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert server.paths == ["/v1/chat/completions"]
    assert server.keys == [f"Bearer {SECRET}"]


@pytest.mark.parametrize(
    ("chosen", "sent"),
    [("json_schema", "json_schema"), ("json_object", "json_object"), ("text", None)],
)
def test_json_is_asked_for_as_the_server_knows_it(
    model: Callable[..., ChatModel], server: ChatServer, chosen: str, sent: str | None
) -> None:
    assert ask(model(response_format=chosen)) == SAME
    assert (server.asked[0].get("response_format") or {}).get("type") == sent


@pytest.mark.parametrize(
    "content",
    [
        '```json\n{"same": true, "confidence": 0.9}\n```',
        "<think>Hm. {no}</think>\n" + json.dumps(SAME),
        "  " + json.dumps(SAME) + "\n",
    ],
)
def test_thoughts_and_fences_around_an_answer_are_taken_off(
    model: Callable[..., ChatModel], server: ChatServer, content: str
) -> None:
    server.does(says(content))
    assert ask(model()) == SAME


# misbehaviour

MALFORMED: list[Behaviour] = [
    says("I think they are the same."),
    says('{"same": true, "confidence": 0.9'),
    says({"same": "yes", "confidence": 0.9}),
    says({"same": True}),
    says([SAME]),
    says("null"),
    says("[" * 100_000),
    says(""),
    sends("not json at all"),
    sends("{}"),
    sends('{"choices": []}'),
    sends('{"choices": [{"message": {"content": null}}]}'),
    sends('{"choices": [{"message": {"content": [1]}}]}'),
    sends('{"choices": 3}'),
    sends(b"\xff\xfe\x00"),
    sends(""),
    floods,
]


@pytest.mark.parametrize("behaviour", MALFORMED)
def test_what_is_no_answer_is_counted_and_not_asked_again(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, behaviour: Behaviour
) -> None:
    server.does(behaviour)
    assert ask(model()) is None
    assert counted() == {"malformed": 1, "degraded": 1}
    assert len(server.asked) == 1


@pytest.mark.parametrize("behaviour", [hangs, drips, drips_headers])
def test_a_slow_server_is_waited_for_no_longer_than_the_limit(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, behaviour: Behaviour
) -> None:
    server.does(behaviour)
    began_s = time.monotonic()
    assert ask(model(timeout_s=0.3)) is None
    assert time.monotonic() - began_s < 5
    assert counted() == {"timeout": 1, "degraded": 1}
    assert len(server.asked) == 1


@pytest.mark.parametrize("behaviour", [breaks_off, talks_nonsense])
def test_a_broken_connection_is_tried_again(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, behaviour: Behaviour
) -> None:
    server.does(behaviour, behaviour, says(SAME))
    assert ask(model()) == SAME
    assert counted() == {"answered": 1}


def test_a_server_that_is_not_there_is_given_up(
    model: Callable[..., ChatModel], counted: Counted
) -> None:
    assert ask(model(nobody_listens())) is None
    assert counted() == {"unreachable": 1, "degraded": 1}


@pytest.mark.parametrize("status", [500, 502, 503, 529, 408])
def test_an_error_of_the_server_passes_or_is_given_up(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, status: int
) -> None:
    asking = model()
    server.does(sends("{}", status), sends("{}", status), says(SAME))
    assert ask(asking, 1) == SAME
    server.does(sends("{}", status))
    assert ask(asking, 2) is None
    assert counted() == {"answered": 1, "server_error": 1, "degraded": 1}
    assert len(server.asked) == 6


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 422])
def test_a_refusal_is_not_tried_again(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, status: int
) -> None:
    server.does(sends("{}", status, Location="http://127.0.0.1:1/elsewhere"))
    assert ask(model()) is None
    assert counted() == {"refused": 1, "degraded": 1}
    assert len(server.asked) == 1


def test_a_busy_server_is_asked_again_when_it_says(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    waited: list[float] = []
    at = formatdate(time.time() + 12, usegmt=True)
    server.does(
        sends("", 429, Retry_After="7"),
        sends("", 429, Retry_After=at),
        sends("", 429, Retry_After="soon"),
        says(SAME),
    )
    assert ask(model(sleep=waited.append, max_attempts=4)) == SAME
    assert waited[0] == 7
    assert 8 < waited[1] <= 12
    assert waited[2] <= 8
    assert counted() == {"answered": 1}


def test_a_server_that_is_busy_for_long_is_left_alone_so_long(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    clock = Clock()
    asking = model(breaker=Breaker(clock))
    server.does(sends("", 429, Retry_After="120"), says(SAME))
    assert ask(asking, 1) is None
    clock.now_s += 119
    assert ask(asking, 2) is None
    assert len(server.asked) == 1
    clock.now_s += 2
    assert ask(asking, 3) == SAME
    assert counted() == {"rate_limited": 1, "suspended": 1, "answered": 1, "degraded": 2}


def test_a_failing_server_is_left_alone_and_found_again(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    clock = Clock()
    asking = model(breaker=Breaker(clock), max_attempts=1)
    server.does(sends("", 500))
    assert [ask(asking, n) for n in range(FAILURES + 20)] == [None] * (FAILURES + 20)
    assert len(server.asked) == FAILURES
    clock.now_s += FIRST_PAUSE_S
    assert ask(asking, 100) is None
    clock.now_s += FIRST_PAUSE_S  # the pause has doubled
    assert ask(asking, 101) is None
    assert len(server.asked) == FAILURES + 1
    clock.now_s += FIRST_PAUSE_S
    server.does(says(SAME))
    assert [ask(asking, n) for n in (102, 103)] == [SAME, SAME]
    assert counted() == {
        "server_error": FAILURES + 1,
        "suspended": 21,
        "answered": 2,
        "degraded": FAILURES + 22,
    }


def test_questions_under_way_when_a_pause_begins_do_not_lengthen_it() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    assert [breaker.failed() for _ in range(FAILURES + 3)] == [
        *[None] * (FAILURES - 1),
        FIRST_PAUSE_S,
        *[None] * 3,
    ]
    clock.now_s += FIRST_PAUSE_S
    assert [breaker.allows(), breaker.allows()] == [True, False]
    assert breaker.failed() == 2 * FIRST_PAUSE_S


def test_malformed_answers_do_not_suspend_a_server(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    asking = model()
    server.does(says("no"))
    assert [ask(asking, n) for n in range(2 * FAILURES)] == [None] * 2 * FAILURES
    server.does(says(SAME))
    assert ask(asking, 100) == SAME


# kept


def test_what_was_answered_is_not_asked_again(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    assert ask(model()) == SAME
    server.does(hangs)
    assert ask(model()) == SAME
    assert model().answer("disambiguation", PAIR | {"entities": [{"name": "b"}, {"name": "a0"}]})
    assert len(server.asked) == 1
    assert counted() == {"answered": 1}


def test_another_model_another_prompt_or_another_text_is_asked(
    model: Callable[..., ChatModel], server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(model())
    ask(model(name="large"))
    ask(model(), 1)
    newer = PROMPTS["disambiguation"]._replace(version=99)
    monkeypatch.setitem(PROMPTS, "disambiguation", newer)
    ask(model())
    assert len(server.asked) == 4


def test_a_failure_is_not_kept(model: Callable[..., ChatModel], server: ChatServer) -> None:
    server.does(says("no"), says(SAME))
    assert [ask(model()), ask(model())] == [None, SAME]


@pytest.mark.parametrize("damage", [b"", b"junk", b"[]", b'{"same": 1, "confidence": 2}'])
def test_a_damaged_answer_is_asked_for_again(
    model: Callable[..., ChatModel],
    server: ChatServer,
    kept: Derivations,
    tmp_path: Path,
    damage: bytes,
) -> None:
    ask(model())
    with sqlite3.connect(tmp_path / "derivations.sqlite") as db:
        ((digest,),) = db.execute("SELECT digest FROM derivation WHERE kind = 'answer'")
    db.close()
    kept.forget("answer", [digest])
    kept.put("answer", {digest: damage})
    assert ask(model()) == SAME
    assert len(server.asked) == 2


def test_a_check_takes_kept_answers_alone(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    ask(model(), 1)
    checking = model()
    with checking.asking_nobody():
        assert [ask(checking, 1), ask(checking, 2)] == [SAME, None]
        assert len(server.asked) == 1
        assert counted() == {"answered": 1}


# many, limits, stopping


def test_many_questions_are_asked_together_but_not_too_many(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    def slowly(handler: Any) -> None:
        time.sleep(0.02)
        says(SAME)(handler)

    server.does(slowly)
    pairs: list[tuple[Task, dict[str, Any]]] = [
        ("disambiguation", {"entities": [{"name": f"a{n % 10}"}, {"name": "b"}]}) for n in range(20)
    ]
    assert model(concurrency=2).answers(pairs) == [SAME] * 20
    assert (len(server.asked), server.most) == (10, 2)


def test_one_bad_question_does_not_touch_the_others(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    server.does(says("no"), says(SAME))
    asking = model(concurrency=1)
    pairs: list[tuple[Task, dict[str, Any]]] = [
        ("disambiguation", {"entities": [{"name": f"a{n}"}, {"name": "b"}]}) for n in range(3)
    ]
    assert asking.answers(pairs) == [None, SAME, SAME]


def test_a_task_that_is_not_wanted_is_not_asked(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    asking = model(tasks=("disambiguation",))
    assert asking.answer("summary", {"text": "A story.", "speaker": None}) is None
    assert ask(asking) == SAME
    assert (len(server.asked), counted()) == (1, {"answered": 1})


def test_a_long_text_is_cut_and_hostile_characters_are_sent(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    server.does(says({"summary": "Ada went home."}))
    question = {"text": "é\ud800\u202e" + "word " * 10_000, "speaker": None}
    assert model(max_characters=300).answer("summary", question) == {"summary": "Ada went home."}
    text = json.loads(server.asked[0]["messages"][1]["content"])["text"]
    assert len(text) <= 300
    assert text.startswith("é?")


def test_too_many_items_are_cut_and_broken_ones_left_out(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    names = [f"Thing{n}" for n in range(30)]
    answer = {
        "entities": [{"name": "Elsewhere", "type": "person"}, 7]
        + [{"name": name, "type": "gadget"} for name in names],
        "edges": [
            {"source": one, "target": other, "relation": "knows"}
            for one in names
            for other in names
        ],
    }
    server.does(says(answer))
    found = model().answer("extraction", {"text": " ".join(names), "speaker": None})
    assert found is not None
    assert [entity["name"] for entity in found["entities"]] == names[:10]
    assert {entity["type"] for entity in found["entities"]} == {"concept"}
    assert len(found["edges"]) == 20


def test_who_waits_is_told_of_a_stop(model: Callable[..., ChatModel], server: ChatServer) -> None:
    asking = model(sleep=None)
    server.does(sends("", 429, Retry_After="25"))
    threading.Timer(0.3, asking.close).start()
    began_s = time.monotonic()
    with pytest.raises(Stopped):
        asking.answers(
            [("disambiguation", {"entities": [{"name": f"a{n}"}, {"name": "b"}]}) for n in range(9)]
        )
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize("behaviour", [hangs, drips, drips_headers])
def test_a_stop_waits_for_no_answer_that_is_under_way(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted, behaviour: Behaviour
) -> None:
    server.does(behaviour)
    asking = model(timeout_s=PATIENCE_S)
    with ThreadPoolExecutor(2) as waiting:
        asked = [waiting.submit(ask, asking, n) for n in range(2)]
        wait_until(lambda: len(server.asked) == 2, "both questions are under way")
        asking.close()
        assert [type(one.exception(SOON_S)) for one in asked] == [Stopped] * 2
        threads = asking._pool._threads  # while one of them is alive, the process is
        wait_until(lambda: not any(one.is_alive() for one in threads), "all have ended", SOON_S)
    with pytest.raises(Stopped):
        ask(asking, 3)
    assert (len(server.asked), counted()) == (2, {})


def test_a_stop_waits_for_no_connection(model: Callable[..., ChatModel], counted: Counted) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as opened:
        for _ in range(3):  # as many as it keeps: the next is not answered
            held = opened.enter_context(socket.socket())
            held.setblocking(False)
            held.connect_ex(deaf.getsockname())
        asking = model(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", timeout_s=PATIENCE_S)
        with ThreadPoolExecutor(1) as waiting:
            asked = waiting.submit(ask, asking)
            with pytest.raises(TimeoutError):
                asked.exception(0.5)
            asking.close()
            assert isinstance(asked.exception(SOON_S), Stopped)
    assert counted() == {}


def test_what_is_kept_is_told_after_a_stop(model: Callable[..., ChatModel]) -> None:
    asking = model()
    assert ask(asking) == SAME
    asking.close()
    asking.close()
    assert ask(asking) == SAME


# what enrichment makes of it


def derived(number: int, text: str) -> Derived:
    made = event(number, payload={"role": "user", "content": text}, agent_id="Melanie")
    return derive_event(Position(1, number), made, event_text(made), Analysis())


def test_a_batch_of_events_takes_in_what_the_model_says(
    model: Callable[..., ChatModel], server: ChatServer, counted: Counted
) -> None:
    def answer(handler: Any) -> None:
        text = json.loads(server.asked[-1]["messages"][1]["content"])["text"]
        extraction = {"entities": [{"name": "Berlin", "type": "location"}], "edges": []}
        says(extraction if "Berlin" in text else "no")(handler)

    server.does(answer)
    batch = [
        derived(1, "Caroline has moved to Berlin."),
        derived(2, "ok"),
        derived(3, "Nobody has been there before me."),
    ]
    found, without = with_answers(model(concurrency=1), batch)
    added = set(found[0].mentions) - set(batch[0].mentions)
    assert {(one.canonical_name, one.subtype) for one in added} == {("berlin", "location")}
    assert found[1:] == batch[1:]
    assert without == {batch[2].event.key}
    assert counted() == {"answered": 1, "malformed": 1, "degraded": 1}
    server.does(hangs)
    assert with_answers(model(), batch[:2]) == (found[:2], frozenset())
    checking = model()
    with checking.asking_nobody():
        assert with_answers(checking, batch) == (found, without)


def test_a_server_that_is_away_leaves_events_as_the_rules_have_them(
    model: Callable[..., ChatModel],
) -> None:
    batch = [derived(n, f"Caroline has moved to Berlin {n} times.") for n in range(1, 10)]
    keys = frozenset(one.event.key for one in batch)
    assert with_answers(model(nobody_listens()), batch) == (batch, keys)


def test_only_open_cases_are_asked_and_only_answers_count(
    model: Callable[..., ChatModel], server: ChatServer
) -> None:
    def known(name: str) -> KnownEntity:
        return KnownEntity(name.replace(" ", "") * 4, name, "concept", "organization")

    open_case = Candidate(known("acme europe"), known("acme group"), 0.8)
    unlike = Candidate(known("acme"), known("zebra"), 0.2)
    assert same_by_model(model(), [open_case, unlike]) == {open_case.entity_ids: True}
    assert len(server.asked) == 1
    other = Candidate(known("acme europe"), known("acme asia"), 0.8)
    server.does(says("no"))
    assert same_by_model(model(), [other]) == {}


# secrets and settings


def test_no_log_line_holds_the_key_the_text_or_what_the_server_said(
    model: Callable[..., ChatModel], server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bad = json.dumps({"error": f"Incorrect API key provided: {SECRET}, private words"})
    with structlog.testing.capture_logs() as lines:
        for behaviour in (sends(bad, 401), sends(bad, 500), sends(bad), hangs):
            server.does(behaviour)
            asking = model(timeout_s=0.2)
            asking.answer("summary", {"text": "private words", "speaker": None})
        asking = model(nobody_listens())
        asking.answer("summary", {"text": "private words", "speaker": None})
    everything = repr(lines) + repr([record.getMessage() for record in caplog.records])
    assert len(lines) == 4
    assert SECRET not in everything
    assert "private words" not in everything
    assert SECRET not in repr(vars(asking)) + repr(vars(asking._completions))


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "ключ", "a\x00b"])
def test_a_key_that_cannot_be_a_header_is_refused_without_being_told(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ChatCompletions("http://127.0.0.1:1/v1", "tiny", SecretStr(key))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp:x", "http://", "http://host:99999/v1", "http://exämple/v1"])
def test_an_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        ChatCompletions(url, "tiny")


def test_without_settings_there_is_none(kept: Derivations) -> None:
    assert make_language_model(Settings(), kept) is None
    assert make_language_model(Settings(llm_url="http://127.0.0.1:1", llm_tasks=()), kept) is None
    with pytest.raises(ConfigurationError):
        make_language_model(Settings(llm_url="http://127.0.0.1:1"), kept)


def test_who_only_disambiguates_derives_nothing(model: Callable[..., ChatModel]) -> None:
    assert model(tasks=("disambiguation",)).revision == ""


def test_the_settings_make_one(server: ChatServer, kept: Derivations) -> None:
    settings = Settings(
        llm_url=server.url + "/",
        llm_model="tiny",
        llm_api_key=SECRET,
        llm_tasks=("disambiguation", "summary"),
    )
    made = make_language_model(settings, kept)
    assert made is not None
    assert (made.model, made.revision) == ("tiny", "summary1/4000")
    assert ask(made) == SAME
    assert server.paths == ["/v1/chat/completions"]
    assert SECRET in logs.known_secrets(settings)
    made.close()
