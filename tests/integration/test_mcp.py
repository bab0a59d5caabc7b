"""The door for models: real clients of the SDK over HTTP and over the real command."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation

from pipelines.ledger.erasing import wishes
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.local.workers import RECOLLECT
from pipelines.work.settings import ApiKey
from tests.integration.api_support import KEYS, OTHER_KEY, READ_KEY, WRITE_KEY, Api
from tests.integration.enrichment_support import Enriched
from tests.integration.facts_support import told

pytestmark = pytest.mark.integration

REVISION = "2026-07-28"
OLDER = "2025-11-25"
FEW, FEW_KEY = 4, "few-key-of-acme-0123456789"
ANA_KEY = "key-bound-to-ana-0123456789"
TOOLS = (
    *("ask", "context", "correct", "facts", "forget_me"),
    *("lessons", "person", "remember", "status", "timeline", "why"),
)
READS = {"ask", "context", "facts", "lessons", "person", "status", "timeline", "why"}
MOVED = "I moved from Hamburg to Lisbon; please ship everything there from now on."
FAILED = {"error": "address not in delivery area", "order": "4711"}
DECIDED = "Use the courier Envialia for Lisbon, for the default carrier does not go there."


class World(NamedTuple):
    api: Api
    enriched: Enriched

    def fold(self) -> None:
        self.enriched.stack.fold()
        self.enriched.fold()


@pytest.fixture(scope="module")
def world(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[World]:
    keys = (
        *KEYS,
        ApiKey(name="few", key=FEW_KEY, tenant="acme", role="write"),
        ApiKey(name="ana", key=ANA_KEY, tenant="acme", role="write", user_id="ana"),
    )
    limits = {"*": "300/second", "few": f"{FEW}/day"}
    # Nothing comes into the ledger between the stages of a fold.
    options = {"api_keys": keys, "request_limits": limits, "record_accesses": False}
    with told(valkey, neo4j, [], **options) as (stack, api):
        yield World(api, Enriched(stack))


@asynccontextmanager
async def connected(
    world: World, key: str = WRITE_KEY, *, mode: str = "auto", **headers: str
) -> AsyncIterator[Client]:
    """A client over HTTP."""
    sent = {"authorization": f"Bearer {key}", **headers}
    async with httpx2.AsyncClient(headers=sent, timeout=60) as http:
        transport = streamable_http_client(f"{world.api.url}/mcp", http_client=http)
        told_name = Implementation(name="Test Client", version="1")
        async with Client(transport, mode=mode, client_info=told_name) as client:
            yield client


async def called(client: Client, tool: str, /, **arguments: Any) -> CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


async def done(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool gives to programs."""
    result = await called(client, tool, **arguments)
    assert not result.is_error, text_of(result)
    answer: dict[str, Any] = result.structured_content
    return answer


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


async def remember_shipping(client: Client, **where: Any) -> list[str]:
    """A message, what failed because of it and what was decided then; their ids."""
    moved = await done(client, "remember", text=MOVED, **where)
    failed = await done(
        client,
        "remember",
        kind="tool_result",
        tool_name="ship_order",
        status="failed",
        result=FAILED,
        parent_event_id=moved["event_id"],
        **where,
    )
    decided = await done(
        client,
        "remember",
        kind="decision",
        text=DECIDED,
        parent_event_id=failed["event_id"],
        **where,
    )
    return [answer["event_id"] for answer in (moved, failed, decided)]


async def test_what_was_remembered_is_answered_with_its_sources(world: World) -> None:
    async with connected(world) as client:
        assert client.protocol_version == REVISION
        told_ids = await remember_shipping(client, session_id="order-4711")
        world.fold()
        answer = await done(client, "ask", question="Which courier goes to Lisbon?")
        assert DECIDED in answer["text"]
        assert f"={told_ids[2]}" in answer["text"]
        assert {node["node_id"] for node in answer["nodes"]} >= set(told_ids)
        assert answer["degraded"] == []


async def test_a_session_is_read_in_order_and_as_a_resource(world: World) -> None:
    async with connected(world) as client:
        told_ids = await remember_shipping(client, session_id="in-order")
        world.fold()
        line = await done(client, "timeline", session_id="in-order")
        assert [event["event_id"] for event in line["events"]] == told_ids
        assert f"user, message.user: {MOVED} [{told_ids[0]}]" in line["text"]
        assert not line["truncated"]
        short = await done(client, "timeline", session_id="in-order", max_tokens=80)
        assert [event["event_id"] for event in short["events"]] == told_ids[:1]
        assert short["truncated"]
        best = await done(client, "context", session_id="in-order", question="Which courier?")
        resource = await client.read_resource("recollect://session/in-order")
        assert resource.contents[0].text == best["text"]  # type: ignore[union-attr]
        event = await client.read_resource(f"recollect://event/{told_ids[1]}")
        stored = json.loads(event.contents[0].text)  # type: ignore[union-attr]
        assert stored["payload"] == {"error": FAILED}
        assert stored["parent_event_id"] == told_ids[0]


async def test_what_a_person_corrects_holds_until_it_is_retracted(world: World) -> None:
    async with connected(world) as client:
        fact = {"subject": "Marta", "relation": "lives_in", "subject_type": "user"}
        await done(client, "correct", action="state_fact", object="Porto", **fact)
        world.fold()
        resource = await client.read_resource("recollect://entity/marta")
        page = json.loads(resource.contents[0].text)  # type: ignore[union-attr]
        assert (page["entity"]["name"], page["entity"]["type"]) == ("Marta", "user")
        answer = await done(client, "facts", about="Where does Marta live?")
        assert [item["object"] for item in answer["facts"]] == ["Porto"]
        await done(client, "correct", action="retract_fact", **fact)
        await done(
            client, "correct", action="rename_entity", subject="Marta", new_name="Marta Reis"
        )
        world.fold()
        assert await done(client, "facts", about="Marta") == {
            "text": "No fact about that is known. Known names like that: Marta Reis (user).",
            "facts": [],
            "similar": ["Marta Reis (user)"],
            "truncated": False,
        }
        assert (await done(client, "facts", about="Mart"))["similar"] == ["Marta Reis (user)"]
        assert (await done(client, "facts", about="Zoe"))["text"] == "No fact about that is known."


async def test_a_person_is_known_by_their_wishes_and_facts(world: World) -> None:
    async with connected(world) as client:
        nobody = await called(client, "person")
        assert "- user_id: required" in text_of(nobody)
        unknown = await done(client, "person", user_id="zoe")
        assert unknown["text"] == "Nothing is known of this user."
        said = "I live in Bergen. Never call me before noon."
        await done(
            client,
            "remember",
            text=said,
            user_id="lena",
            agent_id="lena",
            session_id="of-lena",
        )
        world.fold()
        known = await done(client, "person", user_id="lena")
    assert [one["object"] for one in known["wishes"]] == ["Never call me before noon"]
    assert [(one["relation"], one["object"]) for one in known["facts"]] == [("lives_in", "Bergen")]
    assert "### Do not\n- Never call me before noon [" in known["text"]


async def test_a_wish_to_be_forgotten_is_recorded_and_listed(world: World) -> None:
    async with connected(world) as client:
        anybody = await called(client, "forget_me")
        assert anybody.is_error
        assert "- user_id: required" in text_of(anybody)
        told_so = await called(client, "forget_me", user_id="rosa", session_id="at-the-desk")
        assert "Nothing is erased yet" in text_of(told_so)
    (wish,) = wishes(world.enriched.stack.ledger, "acme")
    assert (wish.user_id, wish.event_id in text_of(told_so)) == ("rosa", True)
    assert wishes(world.enriched.stack.ledger, "globex") == []


async def test_the_same_event_twice_is_one_and_another_by_its_id_is_refused(world: World) -> None:
    async with connected(world) as client:
        given = {"event_id": str(uuid.uuid4()).upper(), "text": "once"}
        first, again = [await done(client, "remember", **given) for _ in range(2)]
        assert (first["duplicate"], again["duplicate"]) == (False, True)
        assert (again["position"], again["event_id"]) == (first["position"], first["event_id"])
        other = await called(client, "remember", **{**given, "text": "another"})
        assert other.is_error
        assert text_of(other).startswith("The event id is taken by other content.")


async def test_tools_are_told_the_same_each_time_and_answer_as_they_say(world: World) -> None:
    async with connected(world) as client:
        listed = await client.list_tools()
        assert listed == await client.list_tools()
        assert (listed.ttl_ms, listed.cache_scope) == (300_000, "public")
        assert tuple(tool.name for tool in listed.tools) == TOOLS
        for tool in listed.tools:
            Draft202012Validator.check_schema(tool.input_schema)
            assert tool.output_schema is not None
            Draft202012Validator.check_schema(tool.output_schema)
            hints = tool.annotations
            assert hints is not None
            assert hints.read_only_hint == (tool.name in READS)
            assert (hints.open_world_hint, hints.idempotent_hint) == (False, True)
        status = await done(client, "status")
        assert status["waiting_for"] == [] or "columns" in status["waiting_for"]
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == [
            *("end_of_session", "recall_before_answering", "what_do_we_know_about"),
        ]
        told_prompt = await client.get_prompt("what_do_we_know_about", {"subject": "Lisbon"})
        assert "What do we know about Lisbon?" in told_prompt.messages[0].content.text  # type: ignore[union-attr]
        templates = (await client.list_resource_templates()).resource_templates
        assert [item.uri_template for item in templates] == [
            f"recollect://{kind}/{{id}}" for kind in ("entity", "event", "session", "summary")
        ]


async def test_why_is_answered_and_whether_anything_helped(world: World) -> None:
    async with connected(world) as client:
        told_ids = await remember_shipping(client, session_id="why-not")
        world.fold()
        why = await done(client, "why", question="Why did ship_order fail?", session_id="why-not")
        assert why["head"] in told_ids
        nothing = {"text": "Nothing is known to have helped with that.", "lessons": []}
        problem = "address not in delivery area"
        assert await done(client, "lessons", problem=problem, session_id="why-not") == nothing


async def test_clients_of_the_revision_before_are_served(world: World) -> None:
    async with connected(world, mode="legacy") as client:
        assert client.protocol_version == "2025-11-25"
        assert len((await client.list_tools()).tools) == len(TOOLS)
        assert (await called(client, "remember", text="from an older client")).is_error is False


async def test_the_real_command_serves_the_same_tools(world: World, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"{WRITE_KEY}\n")
    arguments = ["mcp", "--api", world.api.url, "--api-key-file", str(key_file)]
    arguments += ["--user", "bruno", "--agent", "desk", "--session", "at-the-desk"]
    parameters = StdioServerParameters(command=RECOLLECT[0], args=[*RECOLLECT[1:], *arguments])
    async with Client(stdio_client(parameters)) as client:
        assert client.protocol_version == REVISION
        assert tuple(tool.name for tool in (await client.list_tools()).tools) == TOOLS
        said = await done(client, "remember", text="Bruno prefers tea to coffee.")
        assert said["session_id"] == "at-the-desk"
        world.fold()
        question = {"question": "Tea or coffee?", "min_position": said["position"]}
        assert "prefers tea" in (await done(client, "ask", **question))["text"]
        said = await done(client, "remember", text="Never call me before nine.")
        world.fold()
        heeded = {"question": "Call Bruno.", "min_position": said["position"]}
        text = (await done(client, "ask", **heeded, intent="personalize"))["text"]
        assert "avoid: call me before nine" in text
    async with connected(world) as stranger:
        assert "prefers tea" not in (await done(stranger, "ask", **question))["text"]


async def test_what_comes_with_a_key_of_a_user_is_theirs(world: World) -> None:
    async with connected(world, ANA_KEY) as client:
        said = await done(client, "remember", text="My locker code is in the blue notebook.")
        assert said["session_id"].startswith("test-client-ana-")
        address = f"recollect://event/{said['event_id']}"
        stored = json.loads((await client.read_resource(address)).contents[0].text)  # type: ignore[union-attr]
        assert (stored["user_id"], stored["agent_id"]) == ("ana", "ana")
    async with connected(world) as stranger:
        with pytest.raises(MCPError, match="Resource not found"):
            await stranger.read_resource(address)


def test_who_asks_may_have_any_letters(world: World) -> None:
    """A client sends its configuration as it is written: in UTF-8."""
    arguments = {"text": "I take the night train"}
    asked = message("tools/call", OLDER, name="remember", arguments=arguments)
    names = {"x_user": "Jürgen", "x_agent": "büro"}
    answer = post(world, asked, mcp_protocol_version=OLDER, **names).json()
    path = f"/v1/events/{answer['result']['structuredContent']['event_id']}"
    with world.api.client() as client:
        stored = client.get(path, params={"user_id": "Jürgen"}).json()
    assert (stored["user_id"], stored["session_id"][:12]) == ("Jürgen", "büro-Jürgen-")


async def test_a_user_may_be_named_by_a_path(world: World) -> None:
    async with connected(world, **{"X-User": "team/ana"}) as client:
        await done(client, "remember", text="I prefer trains")
        world.fold()
        assert "trains" in (await done(client, "person"))["text"]
    wrong = {"correction": "retract", "relation": "prefers", "target": "trains"}
    with world.api.client() as http:
        answer = http.post("/v1/users/team%2Fana/corrections", json=wrong)
    assert answer.status_code == 202


async def test_what_is_said_of_an_answer_states_no_fact(world: World) -> None:
    async with connected(world) as client:
        said = await done(client, "remember", text="The lamp is a Tizio", role="assistant")
        judged = {"action": "useful", "node_ids": [said["event_id"]], "subject": "lamp"}
        result = await called(client, "correct", **judged, relation="is_a", object="Tolomeo")
        assert text_of(result).startswith("Noted: ")


async def test_a_result_may_be_nothing(world: World) -> None:
    failed = {"kind": "tool_result", "tool_name": "count", "status": "failed"}
    async with connected(world) as client:
        said = await done(client, "remember", **failed, result=0, text="none was left")
        address = f"recollect://event/{said['event_id']}"
        stored = json.loads((await client.read_resource(address)).contents[0].text)  # type: ignore[union-attr]
    assert stored["payload"] == {"error": 0, "text": "none was left"}


async def test_another_tenant_sees_nothing(world: World) -> None:
    async with connected(world) as client:
        told_ids = await remember_shipping(client, session_id="of-acme")
        world.fold()
        assert (await done(client, "timeline", session_id="of-acme"))["events"]
    async with connected(world, OTHER_KEY) as client:
        seen = [await called(client, "ask", question="Which courier goes to Lisbon?")]
        seen += [await called(client, "facts", about="Lisbon")]
        seen += [await called(client, "lessons", problem="address not in delivery area")]
        for tool in ("timeline", "context"):
            result = await called(client, tool, session_id="of-acme")
            assert result.is_error
            seen.append(result)
        hidden = f"event/{told_ids[0]}", "session/of-acme", "entity/lisbon", "summary/" + 32 * "0"
        for address in hidden:
            with pytest.raises(MCPError, match="Resource not found"):
                await client.read_resource(f"recollect://{address}")
        said = " ".join(item.model_dump_json() for item in seen)
        assert not any(own_id in said for own_id in told_ids)
        assert "Envialia" not in said


async def test_who_may_only_read_is_told_so_by_the_tool(world: World) -> None:
    async with connected(world, READ_KEY) as client:
        result = await called(client, "remember", text="not to be kept")
        assert result.is_error
        assert text_of(result).startswith("The API key does not allow this.")


async def test_wrong_arguments_are_told_to_the_model(world: World) -> None:
    broken: list[tuple[str, dict[str, Any], str]] = [
        ("ask", {}, "- question: Field required"),
        ("lessons", {"problem": "x" * 8_192}, "- problem: "),
        ("ask", {"question": "?", "tenant": "other"}, "- tenant: unknown argument"),
        ("ask", {"question": "?", "min_position": "soon"}, "- min_position: "),
        ("remember", {}, "- text: required of a message"),
        ("remember", {"kind": "tool_call"}, "- tool_name: required of a tool_call"),
        ("remember", {"text": "x", "event_id": "x" * 36}, "- event_id: "),
        ("remember", {"text": "x", "occurred_at": "yesterday"}, "- occurred_at: "),
        ("remember", {"kind": "tool_call", "tool_name": "t", "arguments": 2**70}, "64-bit"),
        ("remember", {"text": "x" * 200_001}, "- text: "),
        ("correct", {"action": "state_fact", "subject": "a"}, "- relation, object: required"),
        ("correct", {"action": "rename_entity", "new_name": "a"}, "- subject: required"),
        ("correct", {"action": "useful"}, "- node_ids: required"),
        ("timeline", {"session_id": "s", "limit": 0}, "- limit: "),
        ("timeline", {"session_id": "no such"}, "Not found."),
        ("correct", {"action": "useful", "node_ids": ["nobody"]}, "- useful"),
    ]
    async with connected(world) as client:
        for tool, arguments, rule in broken:
            result = await called(client, tool, **arguments)
            assert result.is_error
            assert rule in text_of(result), (tool, arguments)


async def test_what_is_not_there_is_an_error_of_the_protocol(world: World) -> None:
    async with connected(world) as client:
        with pytest.raises(MCPError, match="Unknown tool: forget_everything"):
            await client.call_tool("forget_everything", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nothing")
        with pytest.raises(MCPError, match="subject: required"):
            await client.get_prompt("what_do_we_know_about")
        for address in ("file:///etc/passwd", "recollect://key/1", "recollect://event/", "x:y"):
            with pytest.raises(MCPError, match="Resource not found"):
                await client.read_resource(address)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_tools(cursor="2")


def post(
    world: World, content: bytes | dict[str, Any], key: str | None = WRITE_KEY, **headers: str
) -> httpx2.Response:
    """One message, as a client without an SDK sends it."""
    sent = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with httpx2.Client(timeout=60) as client:
        headers_sent = [(name.encode(), value.encode()) for name, value in sent.items()]
        return client.post(f"{world.api.url}/mcp", content=body, headers=headers_sent)


def message(method: str, revision: str = REVISION, **params: Any) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}


LIST = message("tools/list")


@pytest.mark.parametrize("key", [None, "wrong-key-0123456789"])
def test_without_a_valid_key_it_answers_as_other_routes_do(world: World, key: str | None) -> None:
    response = post(world, LIST, key, mcp_method="tools/list")
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["type"] == "urn:recollect:problem:unauthenticated"


def test_another_method_than_post_is_refused(world: World) -> None:
    with httpx2.Client(headers={"authorization": f"Bearer {WRITE_KEY}"}) as client:
        for method in ("GET", "DELETE", "PUT"):
            response = client.request(method, f"{world.api.url}/mcp")
            assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_what_is_no_message_is_an_error_of_the_protocol(world: World) -> None:
    later = "2030-01-01"
    sent = {"mcp_protocol_version": later, "mcp_method": "tools/list"}
    unknown = post(world, message("tools/list", later), **sent)
    assert unknown.status_code == 400
    assert unknown.json()["error"]["code"] == -32_022
    assert REVISION in unknown.json()["error"]["data"]["supported"]
    for content, code in ((b"{", -32_700), (b"[]", -32_600), (b"[" * 100_000, -32_700)):
        response = post(world, content)
        assert (response.status_code, response.json()["error"]["code"]) == (400, code)


def test_half_a_character_is_refused_and_not_our_fault(world: World) -> None:
    arguments = {"kind": "tool_call", "tool_name": "t", "arguments": {"x": "\ud800"}}
    call = message("tools/call", name="remember", arguments=arguments)
    response = post(world, call, mcp_method="tools/call", mcp_name="remember")
    assert response.status_code == 200
    assert response.json()["result"]["isError"]
    name = message("tools/call", name="\ud800")
    assert post(world, name, mcp_method="tools/call", mcp_name="x").status_code == 400


def test_a_body_that_is_too_large_is_refused(world: World) -> None:
    response = post(world, b" " * (8 * 2**20 + 1))
    assert response.status_code == 413
    assert response.json()["type"] == "urn:recollect:problem:body-too-large"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "memory.example.org"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "["},
    ],
)
def test_under_a_foreign_name_nobody_is_served(world: World, headers: dict[str, str]) -> None:
    response = post(world, LIST, mcp_method="tools/list", **headers)
    assert response.status_code == 403
    assert "RECOLLECT_MCP_HOSTS" in response.json()["detail"]


def test_a_page_of_this_machine_is_served(world: World) -> None:
    origin = {"origin": "http://localhost:6274", "mcp_method": "tools/list"}
    assert post(world, LIST, **origin).status_code == 200


def test_a_call_counts_as_one_request(world: World) -> None:
    call = message("tools/call", name="timeline", arguments={"session_id": "none"})
    sent = {"mcp_method": "tools/call", "mcp_name": "timeline"}
    statuses = [post(world, call, FEW_KEY, **sent).status_code for _ in range(FEW + 1)]
    assert statuses == [200] * FEW + [429]


def test_nothing_of_it_is_loaded_before_somebody_comes() -> None:
    look = "import sys, api.main, pipelines.cli.main; print('mcp' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True)
    assert loaded.stdout == b"False\n"


def test_without_an_api_the_command_says_how_to_get_one(tmp_path: Path) -> None:
    command = [*RECOLLECT, "mcp", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"recollect up --detach --all" in ended.stderr
