"""The explorer: pages to look at the memory, read once from the package and served as they are.

They hold no memory: everything comes from the routes of the API, with the key that a person gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

import orjson
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.errors import ApiProblem
from projections.schema import EDGES, NODES

_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "json": "application/json",
}
HEADERS: Final = {
    # Nothing from elsewhere, nothing inline; only the API of the same origin is asked.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; worker-src 'self'; "
    "style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked again each time, and not sent again: a page is never older than its server.
    "Cache-Control": "no-cache",
}
_INDEX: Final = "index.html"

router = APIRouter(prefix="/ui", include_in_schema=False)


class File(NamedTuple):
    """A file of the pages, whole in memory."""

    body: bytes
    media_type: str
    tag: str


def _file(name: str, body: bytes) -> File:
    digest = sha256(body).hexdigest()[:32]
    return File(body, _MEDIA_TYPES[name.rpartition(".")[2]], f'"{digest}"')


def _files(folder: Traversable, prefix: str = "") -> Mapping[str, File]:
    """Files by their path below /ui."""
    files: dict[str, File] = {}
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            files |= _files(entry, f"{name}/")
        else:
            files[name] = _file(name, entry.read_bytes())
    return files


def _legend() -> bytes:
    """What nodes and edges mean, by the schema."""
    edges = {row.type: {"view": row.view, "meaning": row.meaning} for row in EDGES.values()}
    nodes = {row.label: row.meaning for row in NODES.values() if not row.operational}
    return orjson.dumps({"edges": edges, "nodes": nodes})


FILES: Final[Mapping[str, File]] = {
    **_files(resources.files("api") / "explorer"),
    "legend.json": _file("legend.json", _legend()),
}


@router.get("")
async def open_explorer() -> Response:
    """The pages are below a folder, so that they find their files whatever stands before it."""
    return RedirectResponse("ui/", 307)


@router.get("/{name:path}")
async def read_file(name: str, request: Request) -> Response:
    """A file of the pages."""
    file = FILES.get(name or _INDEX)
    if file is None:
        raise ApiProblem("not-found", "The explorer has no such file.")
    headers = {**HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
