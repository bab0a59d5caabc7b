"""Sessions: a list of them, and the events of each in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from api.answers import JsonResponse, atlas_edges, page_meta
from api.browse_schemas import (
    SessionEvents,
    SessionEventsQuery,
    SessionsPage,
    SessionsQuery,
)
from api.cursors import page_of, time_place
from api.dependencies import PathName, Reader, ServicesOf
from api.entity_answers import named_events, session_item, shown_nodes
from api.errors import READ_PROBLEMS, ApiProblem, problem_responses
from api.services import begin_read
from pipelines.columns.reads import SessionLine, SessionList, SessionPage, SessionsAsked
from pipelines.graph.reader import GraphEdge, GraphNode, GraphRead
from pipelines.graph.reads.events import EventReads
from projections.events import timestamp_ms

router = APIRouter(prefix="/v1", tags=["memory"])


@router.get("/sessions", response_model=SessionsPage, responses=problem_responses(*READ_PROBLEMS))
async def list_sessions(
    caller: Reader, services: ServicesOf, query: Annotated[SessionsQuery, Query()]
) -> Response:
    """Sessions in which the viewer sees something, the one with the newest event first.

    Figures and names are of the events that the viewer sees; `since` and `until` choose sessions,
    and the figures are of the whole session.
    """
    context = await begin_read(services, caller, query)
    filters = query.model_dump(include={"query", "since", "until", "failed", "as_of_position"})
    question = ("sessions", caller.tenant, context.scope.viewer, filters)
    wanted = SessionsAsked(
        words=query.query,
        since_ms=None if query.since is None else timestamp_ms(query.since),
        until_ms=None if query.until is None else timestamp_ms(query.until),
        failed=query.failed,
        before=time_place(question, query.cursor),
        limit=query.limit + 1,
    )

    def work() -> tuple[SessionList, Mapping[str, GraphNode]]:
        with services.connections.graph.opened() as graph:
            listed = context.columns(graph.columns).sessions(wanted)
            ids = named_events(listed.sessions)
            events = context.read(
                graph.reader, lambda read: EventReads(read, context.scope).events(ids)
            )
            return listed, events

    listed, events = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    shown, next_cursor = page_of(question, listed.sessions, query.limit, _newest)
    return JsonResponse(
        SessionsPage(
            sessions=[session_item(line, events) for line in shown],
            next_cursor=next_cursor,
            meta=page_meta(
                context,
                len(listed.sessions),
                withheld=context.withheld(lambda: listed.withheld),
                next_cursor=next_cursor,
            ),
        )
    )


def _newest(line: SessionLine) -> tuple[int, str]:
    return line.last_ms, line.session_id


@router.get(
    "/sessions/{session_id:path}/events",
    response_model=SessionEvents,
    responses=problem_responses(*READ_PROBLEMS, "not-found"),
)
async def list_session_events(
    session_id: PathName,
    caller: Reader,
    services: ServicesOf,
    query: Annotated[SessionEventsQuery, Query()],
) -> Response:
    """The events of a session in the order of time, and the edges between those of the page."""
    context = await begin_read(services, caller, query, session_id=session_id)
    viewer = context.scope.viewer
    question = ("session events", caller.tenant, viewer, session_id, query.as_of_position)
    behind = time_place(question, query.cursor)

    def work() -> tuple[SessionPage, dict[str, GraphNode], list[GraphEdge]]:
        with services.connections.graph.opened() as graph:
            columns = context.columns(graph.columns)
            page = columns.session_page(session_id, behind, query.limit + 1)
            ids = [event_id for _, event_id in page.events[: query.limit]]

            def ask(read: GraphRead) -> tuple[dict[str, GraphNode], list[GraphEdge]]:
                reads = EventReads(read, context.scope)
                return reads.events(ids), reads.edges_between(ids)

            return page, *context.read(graph.reader, ask)

    page, events, edges = await services.read(work, timeout_ms=context.deadline.remaining_ms())
    withheld = context.withheld(lambda: page.withheld)
    if not (page.total or withheld):
        raise ApiProblem("not-found", "No event of that session is in the graph.")
    places, next_cursor = page_of(question, page.events, query.limit, tuple)
    in_order = (events[event_id] for _, event_id in places if event_id in events)
    nodes = shown_nodes(in_order, context.now_ms)
    meta = page_meta(context, len(page.events), nodes, withheld=withheld, next_cursor=next_cursor)
    context.record([node.node_id for node in nodes])
    return JsonResponse(
        SessionEvents(
            event_count=page.total,
            nodes=nodes,
            edges=atlas_edges(edges),
            next_cursor=next_cursor,
            meta=meta,
        )
    )
