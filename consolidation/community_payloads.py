"""Payloads of `memory.consolidated` of kind `community`: what a pass decided about one community.

Unknown fields are refused, every broken rule is named by its field.

- kind: community.
- community_id: `community:<hash>` or the bare hash. run_id: 1 to 64 characters, the same in
  all chunks of a decision and in no other.
- gone: true, and no other field: the community is no more.

Otherwise, so that a payload stays below 128 KiB, the members come in chunks:

- chunk, chunks: which one (from 0) of how many.
- fingerprint: 64 hexadecimal digits, the same in all chunks.
- member_count: 1 or more, of all chunks together.
- entity_ids: 1 to 2,000 members; as many as fit in each chunk but the last.
- name, summary: in chunk 0 alone, at most 120 and 600 characters.
- user_id: in chunk 0 alone, whose facts made it; absent for facts without a user.
- centroid: in chunk 0 alone, 384 little-endian float32 in base64; absent without vectors.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

import numpy as np

from consolidation.communities import Community
from consolidation.community_texts import (
    MAX_NAME_CHARACTERS,
    MAX_SUMMARY_CHARACTERS,
    CommunityText,
)
from enrichment.payload_fields import Fields
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS as USER_ID_CHARACTERS
from projections.schema import VECTOR_DIMENSIONS

KIND = "community"
CHUNK_MEMBERS = 2_000
"""So that a payload stays below 128 KiB."""
MAX_RUN_ID_CHARACTERS = 64
VECTOR_BYTES = 4 * VECTOR_DIMENSIONS

_COMMUNITY_ID = re.compile(r"(?:community:)?([0-9a-f]{32})")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_MOST = 2**31 - 1


class CommunityGone(NamedTuple):
    """A community that is no more."""

    community_id: str
    run_id: str


class CommunityChunk(NamedTuple):
    """A chunk of a community as decided.

    Attributes:
        community_id: its hash.
        run_id: of the pass.
        chunk, chunks: which one, from 0, of how many.
        fingerprint: of members and links.
        member_count: of all chunks together.
        entity_ids: the members of this chunk.
        text: in chunk 0, else None.
        centroid: in chunk 0, if there is one: VECTOR_BYTES.
        user_id: in chunk 0: whose facts made it; None: facts without a user.
    """

    community_id: str
    run_id: str
    chunk: int
    chunks: int
    fingerprint: str
    member_count: int
    entity_ids: tuple[str, ...]
    text: CommunityText | None = None
    centroid: bytes | None = None
    user_id: str | None = None


def community_chunks(
    community_id: str,
    community: Community,
    text: CommunityText,
    centroid: bytes | None,
    *,
    run_id: str,
    user_id: str | None = None,
) -> list[CommunityChunk]:
    """A community in chunks; the members by id, so that equal communities have equal chunks."""
    entity_ids = sorted(member.entity_id for member in community.members)
    starts = range(0, len(entity_ids), CHUNK_MEMBERS)
    return [
        CommunityChunk(
            community_id,
            run_id,
            chunk,
            len(starts),
            community.fingerprint,
            len(entity_ids),
            tuple(entity_ids[start : start + CHUNK_MEMBERS]),
            text if chunk == 0 else None,
            centroid if chunk == 0 else None,
            user_id if chunk == 0 else None,
        )
        for chunk, start in enumerate(starts)
    ]


def community_payload(decided: CommunityChunk | CommunityGone) -> dict[str, Any]:
    """The payload of a decision."""
    head = {"kind": KIND, "community_id": decided.community_id, "run_id": decided.run_id}
    if isinstance(decided, CommunityGone):
        return {**head, "gone": True}
    payload = {
        **head,
        "chunk": decided.chunk,
        "chunks": decided.chunks,
        "fingerprint": decided.fingerprint,
        "member_count": decided.member_count,
        "entity_ids": list(decided.entity_ids),
    }
    if decided.text is not None:
        payload.update(name=decided.text.name, summary=decided.text.summary)
    if decided.user_id is not None:
        payload["user_id"] = decided.user_id
    if decided.centroid is not None:
        payload["centroid"] = b64encode(decided.centroid).decode()
    return payload


def parse_community(payload: Any) -> CommunityChunk | CommunityGone:
    """The decision that a payload holds.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.chunk`).
    """
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    decided = _decided(fields) if fields is not None else None
    if errors or decided is None:
        raise InvalidEvent(tuple(errors))
    return decided


def _decided(fields: Fields) -> CommunityChunk | CommunityGone | None:
    fields.choice("kind", (KIND,), required=True)
    community_id = _matched(
        fields, "community_id", _COMMUNITY_ID, "a community id, community:<hash>"
    )
    run_id = fields.text("run_id", MAX_RUN_ID_CHARACTERS, required=True)
    if fields.has("gone"):
        fields.refuse_others("kind community_id run_id gone")
        if fields.flag("gone") is False:
            fields.refuse("gone", "true or absent")
        if community_id is None or run_id is None:
            return None
        return CommunityGone(community_id, run_id)
    fields.refuse_others(
        "kind community_id run_id chunk chunks fingerprint member_count entity_ids name summary "
        "centroid user_id"
    )
    return _chunk(fields, community_id, run_id)


def _chunk(fields: Fields, community_id: str | None, run_id: str | None) -> CommunityChunk | None:
    chunks = _number(fields, "chunks", 1, _MOST)
    chunk = _number(fields, "chunk", 0, (chunks or _MOST) - 1)
    entity_ids = fields.entity_ids("entity_ids", 1, CHUNK_MEMBERS)
    fingerprint = _matched(fields, "fingerprint", _FINGERPRINT, "64 hexadecimal digits")
    count = _number(fields, "member_count", 1, _MOST)
    first = _first_chunk(fields, chunk)
    if community_id is None or run_id is None or fingerprint is None or not entity_ids:
        return None
    if chunk is None or chunks is None or count is None:
        return None
    _fits(fields, chunk, chunks, count, len(entity_ids))
    return CommunityChunk(
        community_id, run_id, chunk, chunks, fingerprint, count, entity_ids, *first
    )


def _fits(fields: Fields, chunk: int, chunks: int, count: int, listed: int) -> None:
    """Check that the chunks can add up to the members that are announced."""
    if chunks != -(-count // CHUNK_MEMBERS):
        fields.refuse("chunks", f"one for every {CHUNK_MEMBERS:,} members")
    elif listed != min(CHUNK_MEMBERS, count - chunk * CHUNK_MEMBERS):
        fields.refuse("entity_ids", f"{CHUNK_MEMBERS:,} members, in the last chunk what is left")


def _first_chunk(
    fields: Fields, chunk: int | None
) -> tuple[CommunityText | None, bytes | None, str | None]:
    """What chunk 0 alone carries."""
    if chunk != 0:
        for field in ("name", "summary", "centroid", "user_id"):
            if fields.has(field):
                fields.refuse(field, "in chunk 0 alone")
        return None, None, None
    name = fields.text("name", MAX_NAME_CHARACTERS, required=True)
    summary = fields.text("summary", MAX_SUMMARY_CHARACTERS, required=True)
    text = None if name is None or summary is None else CommunityText(name, summary)
    return text, _vector(fields, "centroid"), fields.text("user_id", USER_ID_CHARACTERS)


def _number(fields: Fields, field: str, least: int, most: int) -> int | None:
    value = fields.raw.get(field)
    if type(value) is int and least <= value <= most:
        return value
    fields.refuse(field, f"an integer from {least} to {most}")
    return None


def _matched(fields: Fields, field: str, pattern: re.Pattern[str], rule: str) -> str | None:
    value = fields.raw.get(field)
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        fields.refuse(field, rule)
        return None
    return match[pattern.groups]


def _vector(fields: Fields, field: str) -> bytes | None:
    value = fields.raw.get(field)
    if value is None:
        return None
    try:
        vector = b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        vector = b""
    if len(vector) != VECTOR_BYTES or not np.isfinite(np.frombuffer(vector, dtype="<f4")).all():
        fields.refuse(field, f"{VECTOR_DIMENSIONS} finite little-endian float32 in base64")
        return None
    return vector
