"""`python -m tests.bench.otlp_spans`: spans a second that the API takes into a real ledger.

    python -m tests.bench.otlp_spans                  # one process of the API, then two
    python -m tests.bench.otlp_spans --spans 4096 --rounds 1

Agents are traced by the SDK of OpenTelemetry (a question, two tools, an answer: six spans a turn,
four turns a conversation) and encoded by its exporter, 512 spans a request, beforehand. Two senders
send them over connections that stay open. API, Valkey and senders share the machine; no worker
folds meanwhile. The aim is 3,000 spans/s, by the best of the rounds, as others may use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Tracer

from tests.bench.machine import load, say
from tests.bench.query.__main__ import api, services
from tests.bench.stack import child_pids, cpu_seconds
from tests.five_ways.otlp import Message, message

AIM_PER_S: Final = 3_000
SPANS: Final = 24_576
AT_ONCE: Final = 512
"""Spans in a request, as the SDK's processor sends them."""
SENDERS: Final = 2
TURNS: Final = 4
ROUNDS: Final = 3
SETTINGS: Final = {
    "RECOLLECT_REQUEST_LIMITS": '{"*": ""}',
    "RECOLLECT_EVENT_LIMITS": '{"*": ""}',
    "RECOLLECT_OVERLOAD_LAG_ENTRIES": "10000000",
    "RECOLLECT_OVERLOAD_LAG_SECONDS": "100000",
}
"""No worker is there to keep up, and nothing may be refused for that."""


class Round(NamedTuple):
    """What one round came to.

    Attributes:
        spans_per_s: taken.
        api_us: processor time of the API for each span, µs.
        valkey_us: of the ledger's server, likewise.
        load: of the machine before it.
    """

    spans_per_s: float
    api_us: float
    valkey_us: float
    load: float


# -- what is sent ----------------------------------------------------------------------------------


def bodies(count: int) -> list[bytes]:
    """Requests with that many spans of new traces in all."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("bench")
    number = 0
    while len(exporter.get_finished_spans()) < count:
        _converse(tracer, number)
        number += 1
    spans: Sequence[ReadableSpan] = exporter.get_finished_spans()[:count]
    return [
        encode_spans(spans[start : start + AT_ONCE]).SerializeToString()
        for start in range(0, count, AT_ONCE)
    ]


def _converse(tracer: Tracer, number: int) -> None:
    messages: list[Message] = []
    order = f"ORD-{number}-{time.time_ns() % 10**9}"
    for turn in range(TURNS):
        with _spanned(tracer, "invoke_agent", order):
            words = f"Where is order {order}? It was to come on day {turn} of this week."
            messages.append(message("user", {"type": "text", "content": words}))
            for tool in ("look_up_order", "track_parcel"):
                call = {"type": "tool_call", "id": f"call_{order}_{turn}_{tool}", "name": tool}
                asked = {**call, "arguments": {"order": order}}
                _ask_model(tracer, order, messages, message("assistant", asked))
                returned = {"order": order, "state": "on its way", "stops": turn, "city": "Bern"}
                _execute(tracer, order, asked, returned)
                part = {"type": "tool_call_response", "id": call["id"], "response": returned}
                messages.append(message("tool", part))
            answer = {"type": "text", "content": f"Order {order} is in Bern, {turn} stops away."}
            _ask_model(tracer, order, messages, message("assistant", answer))


def _ask_model(tracer: Tracer, order: str, messages: list[Message], answer: Message) -> None:
    with _spanned(tracer, "chat", order) as span:
        span.set_attribute("gen_ai.input.messages", json.dumps(messages))
        span.set_attribute("gen_ai.output.messages", json.dumps([answer]))
    messages.append(answer)


def _execute(tracer: Tracer, order: str, call: Mapping[str, Any], result: Any) -> None:
    with _spanned(tracer, "execute_tool", order) as span:
        span.set_attribute("gen_ai.tool.name", call["name"])
        span.set_attribute("gen_ai.tool.call.id", call["id"])
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps(call["arguments"]))
        span.set_attribute("gen_ai.tool.call.result", json.dumps(result))


@contextmanager
def _spanned(tracer: Tracer, operation: str, conversation: str) -> Iterator[Span]:
    with tracer.start_as_current_span(operation) as span:
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.request.model", "gpt-5")
        span.set_attribute("gen_ai.conversation.id", conversation)
        span.set_attribute("gen_ai.agent.name", "desk")
        span.set_attribute("user.id", "ana")
        yield span


# -- how long it takes -----------------------------------------------------------------------------


def measure(client: httpx.Client, pids: Mapping[str, Sequence[int]], count: int) -> Round:
    """Send spans that are new."""
    requests = bodies(count)

    def used() -> dict[str, float]:
        return {name: sum(map(cpu_seconds, ids)) for name, ids in pids.items()}

    def send(body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        answer = client.post("/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.content) == (200, b""), answer.content[:500]

    before, load_before, begun = used(), load(), time.perf_counter()
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, requests))
    wall_s = time.perf_counter() - begun
    spent = {name: (seconds - before[name]) / count * 1e6 for name, seconds in used().items()}
    return Round(count / wall_s, spent["api"], spent["valkey"], load_before)


def measured(processes: int, count: int, rounds: int) -> list[Round]:
    """Rounds with so many processes of the API, after one that does not count."""
    with tempfile.TemporaryDirectory() as name, services(Path(name)) as (valkey, graph):
        os.environ.update({**SETTINGS, "RECOLLECT_DATA_DIR": name})
        with api(Path(name), valkey.url, graph.url, processes) as (process, client):
            pid, ledger = process.pid or 0, valkey.pid or 0
            pids = {"api": [pid, *child_pids(pid)], "valkey": [ledger]}
            measure(client, pids, AT_ONCE * SENDERS)
            return [measure(client, pids, count) for _ in range(rounds)]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--spans", type=int, default=SPANS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    for processes in options.processes:
        rounds = measured(processes, options.spans, options.rounds)
        for each in rounds:
            say(
                f"{processes} processes: {each.spans_per_s:,.0f} spans/s; a span costs the API "
                f"{each.api_us:.0f} µs of processor time, Valkey {each.valkey_us:.0f}; "
                f"load before {each.load}"
            )
        best = max(each.spans_per_s for each in rounds)
        say(f"{processes} processes: best {best:,.0f} spans/s, aim {AIM_PER_S:,}")


if __name__ == "__main__":
    main()
