"""Every route of the document as every kind of caller, asked much that is strange: only documented
answers, and nothing of another user or tenant.

What is generated rarely names what is there, so ids, words, sessions and users of everybody are put
in its place in most requests. An answer may say again what its request said, and no more.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case, checks
from schemathesis.core.transport import Response

from api.read_schemas import MAX_TIMEOUT_MS
from pipelines.graph.reads import scope
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.observe import logs
from tests.integration.api_support import WRITE_KEY
from tests.integration.private_world import AGENT, SHARED_PLACE, hidden_from
from tests.integration.test_api_fuzzed import CHECKS, give_time, openapi
from tests.integration.test_api_private import (
    CALLERS,
    STRANGER,
    Caller,
    Leaked,
    Town,
    around,
    town_of,
)

pytestmark = pytest.mark.integration

ASKED_FOR: Final = os.environ.get("TEST_FUZZ_EXAMPLES")
EXAMPLES: Final = int(ASKED_FOR or 3)
"""Requests of a route that are generated; each is sent by every caller."""
PHASES: Final = [Phase.explicit, Phase.generate] if ASKED_FOR else [Phase.generate]
"""Where many are asked for, every keyword of the schemas is broken once, too."""
JUDGED: Final = [check for check in CHECKS if check is not checks.ignored_auth]
ASKING: Final = (
    *(CALLERS[name] for name in ("ann", "nobody", "a key of ann", "ann elsewhere", "an operator")),
    Caller("a writer", WRITE_KEY, "bob"),
)

sent: Counter[str] = Counter()
_log = logs.get_logger(__name__)


@pytest.fixture(scope="module")
def town(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Town]:
    with town_of(valkey, neo4j, 0) as opened:
        yield opened.after(1)
    assert sent["200"], "no answer told anything"
    _log.info("asked", by_status=dict(sent))


def known_ids(town: Town) -> list[str]:
    """Of everything and everybody in both tenants: what ids in paths and bodies may name."""
    made = town.made
    named = (f"entity:{word} vault" for words in made.words.values() for word in words)
    sessions = {one.session_id for one in made.events}
    events = (one.event_id for one in made.events)
    return sorted({*town.nodes.users, *events, *named, *sessions, SHARED_PLACE, AGENT})


def known_values(town: Town, chosen: random.Random, name: str) -> Any:
    """Something that is there, for a field of a name; None: the field is left as it is."""
    words = [word for words in town.made.words.values() for word in words]
    ids = known_ids(town)
    match name:
        case "query":
            return f"Why is {chosen.choice(words)} of the {SHARED_PLACE} lost?"
        case "seed_nodes":
            return chosen.sample(ids, 3)
        case "user_id":
            return chosen.choice([*town.made.users.values(), "*"])
        case "scope":
            return chosen.choice(("session", "agent"))
        case _ if name.endswith("_id"):
            return chosen.choice(ids)
    return None


def as_asked_by(caller: Caller, town: Town, case: Case[Any], chosen: random.Random) -> None:
    """Put known values into most of a request, and the caller's view into all of it."""
    names_user = any(parameter.name == "user_id" for parameter in case.operation.query)
    # What is put into the ledger here stays as it was generated: words of others would be told.
    is_question = case.operation.path.startswith("/v1/query/")
    body = case.body if is_question and isinstance(case.body, dict) else None
    for values, is_path in ((case.path_parameters, True), (case.query, False), (body, False)):
        for name in values or {}:
            value = known_values(town, chosen, name)
            if value is not None and values is not None and chosen.random() < 0.8:
                values[name] = quote(value, safe="") if is_path else value
    if not caller.names_user:
        return
    user = None if caller.user is None else town.made.users[caller.user]
    view = "*" if caller.everyone else user or STRANGER
    if names_user:
        case.query = {**(case.query or {}), "user_id": view}
    elif body is not None:
        body["user_id"] = view


def told_of_others(caller: Caller, town: Town, answer: Response) -> list[str]:
    """What the answer says of others that the request did not say."""
    asked = answer.request
    body = asked.body.decode("utf-8", "replace") if isinstance(asked.body, bytes) else asked.body
    spoken = f"{asked.url} {body}".lower()
    text = answer.text + json.dumps(answer.headers)
    user = None if caller.user is None else town.made.users[caller.user]
    exact, small = hidden_from(town.made, town.nodes, caller.tenant, user, everyone=caller.everyone)
    lowered = text.lower()
    hidden = [one for one in exact if one in text] + [one for one in small if one in lowered]
    return [one for one in hidden if one.lower() not in spoken]


def ask(case: Case[Any], caller: Caller, town: Town) -> None:
    """Ask once, as a caller, and judge the answer."""
    generated = (case.operation.label, case.path_parameters, case.query, case.body, caller.name)
    as_asked_by(caller, town, case, random.Random(repr(generated)))
    give_time(case)
    headers = {"Authorization": f"Bearer {caller.key}"}
    if caller.everyone:
        headers["X-Tenant"] = caller.tenant
    case.headers.pop("X-Tenant", None)
    answer = case.call(base_url=town.api.url, headers=headers, timeout=2 * MAX_TIMEOUT_MS / 1000)
    sent[f"{answer.status_code}"] += 1
    case.validate_response(answer, checks=JUDGED, headers=headers)
    if told := told_of_others(caller, town, answer):
        asked = case.as_curl_command(headers=headers)
        raise Leaked(caller.name, asked, told, around(answer.text, told[0]))


@openapi.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
def test_nobody_is_told_of_others(case: Case[Any], town: Town) -> None:
    generated = (case.path_parameters, case.query, case.body)
    for caller in ASKING:
        case.path_parameters, case.query, case.body = copy.deepcopy(generated)
        ask(case, caller, town)


def test_a_rule_that_is_taken_out_is_noticed(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope.Scope, "sees_user", lambda viewer, user_id: True)
    operation = openapi["/v1/events/{event_id}"]["get"]

    def ask_often() -> None:
        for number in range(100):
            case = operation.Case(path_parameters={"event_id": str(number)})
            ask(case, CALLERS["a key of ann"], town)

    with pytest.raises(Leaked):
        ask_often()
