"""Users: what is about one of them is erased."""

from __future__ import annotations

from functools import partial
from hmac import compare_digest
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.answers import JsonResponse
from api.dependencies import Admin, ServicesOf
from api.errors import ApiProblem, problem_responses
from api.services import Caller
from pipelines.ledger.erasing import (
    MAX_REASON_CHARACTERS,
    begin_erasure,
    confirmation,
    entries_of,
    erasable,
    erasures,
)
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.sealing import Subject
from pipelines.observe.logs import get_logger
from projections.errors import OperationFailed
from projections.events import MAX_NAME_CHARACTERS

_log = get_logger(__name__)
_PROBLEMS: Final = (
    *("unauthenticated", "forbidden", "not-found", "invalid-input", "rate-limited"),
    *("ledger-unavailable", "keys-unavailable", "internal"),
)

router = APIRouter(prefix="/v1", tags=["memory"])


class Erasure(BaseModel):
    """An erasure, or what it would take away."""

    subject: str = Field(description="Stands for the user, and tells nothing of who that is.")
    entries: int | None = Field(description="Of the ledger; none while they are not counted.")
    step: str | None = Field(
        description="How far it has come: fenced, forgotten, destroyed, purged, done; none: it "
        "was not begun."
    )
    confirm: str | None = Field(
        default=None, description="To be sent with the second request, which begins it."
    )
    receipt: int | None = Field(default=None, description="Number of the receipt, once it is done.")


@router.delete(
    "/users/{user_id}",
    response_model=Erasure,
    responses={202: {"model": Erasure}, **problem_responses(*_PROBLEMS)},
)
async def erase_user(
    user_id: Annotated[str, Path(min_length=1, max_length=MAX_NAME_CHARACTERS)],
    caller: Admin,
    services: ServicesOf,
    confirm: Annotated[
        str | None, Query(max_length=64, description="As the first answer says.")
    ] = None,
    reason: Annotated[
        str, Query(max_length=MAX_REASON_CHARACTERS, description="For the receipt.")
    ] = "",
) -> Response:
    """Erase a user of a sealed tenant, in two steps: ask, then send `confirm` with it.

    From the second request on nothing more is taken about the user, and nobody reads what is
    sealed. The consolidation's worker does the rest; ask again to see how far it is.
    """
    ledger = services.ledger()
    subject = Subject("user", user_id)
    erase = partial(_erase, ledger, caller, subject, confirm=confirm, reason=reason)
    erasure = await to_thread.run_sync(erase)
    status = 200
    if confirm is not None:
        status = 202
        _log.warning("erasure asked for", tenant=caller.tenant, subject=erasure.subject)
    return JsonResponse(erasure, status_code=status)


def _erase(
    ledger: Ledger, caller: Caller, subject: Subject, *, confirm: str | None, reason: str
) -> Erasure:
    vault, tenant = ledger.vault, caller.tenant
    try:
        key_id = erasable(vault, tenant, subject)
    except OperationFailed as error:
        raise ApiProblem("not-found", str(error)) from None
    under_way = _begun(ledger, key_id)
    if under_way is not None:
        return under_way
    entries = entries_of(ledger, key_id)
    token = confirmation(vault, key_id, entries)
    if confirm is None:
        return Erasure(subject=key_id.hex(), entries=entries, step=None, confirm=token)
    if not compare_digest(confirm.encode(), token.encode()):
        rule = ("confirm", "what the first answer says; the user may have more events by now")
        raise ApiProblem("invalid-input", "The confirmation is another.", errors=[rule])
    begin_erasure(ledger, tenant, subject, reason=reason, by=caller.name)
    begun = _begun(ledger, key_id)
    assert begun is not None
    return begun


def _begun(ledger: Ledger, key_id: bytes) -> Erasure | None:
    told: dict[str, Any] | None = next(
        (one for one in erasures(ledger.vault) if one["subject"] == key_id.hex()), None
    )
    if told is None:
        return None
    return Erasure(
        subject=told["subject"],
        entries=told.get("entries"),
        step=told["step"],
        receipt=told.get("receipt"),
    )
