"""The driver as our processes load it: quiet of what it is given, its errors told in our words."""

from __future__ import annotations

import subprocess
import sys

import pytest
from neo4j.exceptions import (
    ClientError,
    DatabaseError,
    Neo4jError,
    ServiceUnavailable,
    TransientError,
)

from pipelines.graph.client import driver_errors, graph_error, log_safe
from projections.errors import (
    GraphError,
    GraphRejected,
    GraphUnavailable,
    QueryTimeout,
    TransactionTimeout,
)

_LOADED = """
import sys
import pipelines.graph.client
from neo4j import _optional_deps
assert "pyarrow" not in sys.modules, "55 MB of every process"
assert _optional_deps.np.int64(3) == 3
"""


def test_the_driver_is_loaded_without_what_nobody_asks_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_parameters_stay_equal_and_print_their_size() -> None:
    given = {"vector": [0.1, 0.2], "cosines": {"secret": 1.0}, "tenant": "acme", "most": None}
    found = log_safe(given)
    assert found == given
    assert repr(found) == (
        "{'vector': [2 items], 'cosines': {1 items}, 'tenant': 'acme', 'most': None}"
    )


CODES: list[tuple[str, type[GraphError]]] = [
    # the server's, whatever it was doing
    ("Neo.DatabaseError.Statement.ExecutionFailed", GraphUnavailable),
    ("Neo.DatabaseError.General.UnknownError", GraphUnavailable),
    ("Neo.DatabaseError.General.StorageDamageDetected", GraphUnavailable),
    ("Neo.DatabaseError.Schema.ConstraintCreationFailed", GraphUnavailable),
    ("Neo.DatabaseError.Transaction.TransactionCommitFailed", GraphUnavailable),
    ("Neo.ClientError.Statement.EntityNotFound", GraphUnavailable),
    ("Neo.ClientError.General.ForbiddenOnReadOnlyDatabase", GraphUnavailable),
    ("Neo.ClientError.Transaction.TransactionTerminated", GraphUnavailable),
    ("Neo.ClientError.Security.Unauthorized", GraphUnavailable),
    ("Neo.ClientError.Database.DatabaseNotFound", GraphUnavailable),
    ("Neo.ClientError.Cluster.NotALeader", GraphUnavailable),
    ("Neo.TransientError.Transaction.DeadlockDetected", GraphUnavailable),
    ("Neo.TransientError.General.MemoryPoolOutOfMemoryError", GraphUnavailable),
    ("Neo.SomethingNew.Of.ALaterVersion", GraphUnavailable),
    # the caller's
    ("Neo.ClientError.Statement.SyntaxError", GraphRejected),
    ("Neo.ClientError.Statement.TypeError", GraphRejected),
    ("Neo.ClientError.Schema.ConstraintValidationFailed", GraphRejected),
    ("Neo.ClientError.General.InvalidArguments", GraphRejected),
    ("Neo.ClientError.Procedure.ProcedureCallFailed", GraphRejected),
]


def as_the_driver_makes_it(code: str, message: str = "what the server says\nmore") -> Neo4jError:
    error = Neo4jError._hydrate_neo4j(code=code, message=message)
    assert isinstance(error, Neo4jError)
    return error


@pytest.mark.parametrize(("code", "expected"), CODES)
def test_readers_and_writers_are_told_the_same(code: str, expected: type[GraphError]) -> None:
    error = as_the_driver_makes_it(code)
    reading, writing = graph_error(error, 1_000), graph_error(error)
    assert type(reading) is type(writing) is expected
    assert "\n" not in str(writing)
    with pytest.raises(expected), driver_errors():
        raise error


@pytest.mark.parametrize(
    "code",
    [
        "Neo.ClientError.Transaction.TransactionTimedOut",
        "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
    ],
)
def test_a_limit_is_that_of_the_question_or_of_the_transaction(code: str) -> None:
    error = as_the_driver_makes_it(code)
    assert isinstance(error, ClientError)
    assert type(graph_error(error)) is TransactionTimeout
    reading = graph_error(error, 250)
    assert isinstance(reading, QueryTimeout)
    assert reading.timeout_ms == 250


def test_a_value_too_large_for_an_index_is_the_callers_though_neo4j_blames_itself() -> None:
    text = "Property value is too large to index, please see index documentation for limitations."
    error = as_the_driver_makes_it("Neo.DatabaseError.Statement.ExecutionFailed", text)
    assert isinstance(error, DatabaseError)
    assert type(graph_error(error)) is type(graph_error(error, 1_000)) is GraphRejected


@pytest.mark.parametrize("error", [ServiceUnavailable("bolt://10.0.0.1 is away"), OSError("gone")])
def test_a_connection_that_broke_is_the_servers_and_names_no_address_to_readers(
    error: Exception,
) -> None:
    assert type(graph_error(error)) is GraphUnavailable
    reading = graph_error(error, 1_000)
    assert str(reading).endswith(f": {type(error).__name__}")


def test_what_the_driver_calls_transient_passes() -> None:
    error = as_the_driver_makes_it("Neo.TransientError.Database.DatabaseUnavailable")
    assert isinstance(error, TransientError)
    assert graph_error(error).retryable


def test_what_fails_on_the_way_out_of_an_interrupt_is_no_fault_that_passes() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ServiceUnavailable("the connection is in the midst of an answer")

    with pytest.raises(KeyboardInterrupt), driver_errors():
        interrupted()
