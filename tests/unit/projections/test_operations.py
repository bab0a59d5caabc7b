"""Batches, positions, digests, differences: the small parts of the fold."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.graph import cypher
from pipelines.proof.sums import MODULUS, digest_text, element_digest
from projections import errors
from projections.identity import START, Link, Position
from projections.operations import (
    EnsureNode,
    MergeEdge,
    Operation,
    Operations,
    RemoveEdge,
    RemoveNode,
)
from projections.schema import CAUSED_BY, DIRECT, EVENT, FOLLOWS, SUMMARIZES, SUMMARY
from projections.structural import Neighbours, event_node, follows_edge, neighbours_in
from tests.factories import event

STAGE = "projection"

# -- positions -------------------------------------------------------------------------------------


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_position_survives_the_wire(ms: int, seq: int) -> None:
    made = Position(ms, seq)
    assert Position.parse(str(made)) == Position.parse(str(made).encode()) == made


def test_positions_compare_as_numbers() -> None:
    assert Position.parse("9-10") > Position.parse("9-9") > START
    assert Position.parse("10-0") > Position.parse("9-99")
    assert Position.parse("7") == Position(7, 0)


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "1-2-3", "a-b", "1-1\n", "+1-1", "²-1", b"\xff", f"{2**64}-0"]
)
def test_what_is_no_position_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)


def follows(a: int, b: int, delta_ms: int) -> MergeEdge:
    ends = Link(0, event(a).event_id), Link(delta_ms, event(b).event_id)
    return follows_edge(("default", "session-1"), *ends)


# -- a batch ---------------------------------------------------------------------------------------


def test_the_last_word_about_a_node_or_an_edge_wins() -> None:
    batch = Operations()
    for tool, delta_ms in (("a", 1), ("b", 2)):
        batch.add(event_node(event(1, tool_name=tool), START))
        batch.add(follows(1, 2, delta_ms))
    assert list(batch) == [event_node(event(1, tool_name="b"), START), follows(1, 2, 2)]
    assert len(batch) == 2


def test_what_another_stage_owns_comes_last_and_counts() -> None:
    batch = Operations()
    bridge = follows(1, 3, 2)
    batch.on_behalf_of("projection").add(bridge)
    batch.add(RemoveNode(EVENT.label, ("t", "2")))
    assert list(batch) == [RemoveNode(EVENT.label, ("t", "2")), bridge]
    assert (len(batch), batch.counts()["merge_edge"]) == (2, 1)
    texts = [text for text, _ in cypher.statements(batch, "consolidation")]
    assert texts == [
        cypher.remove_nodes_text(EVENT.label),
        cypher.merge_edges_text(FOLLOWS.type, "projection"),
    ]


def test_edges_of_one_type_may_end_at_two_labels() -> None:
    batch = Operations()
    for source, target, label in (("a", "1", ""), ("b", "a", SUMMARY.label)):
        batch.add(
            MergeEdge(
                type=SUMMARIZES.type,
                source=("t", source),
                target=("t", target),
                values={},
                label=label,
            )
        )
    made = cypher.statements(batch, "consolidation")
    assert [parameters["rows"] for _, parameters in made] == [
        [["t", "a", "t", "1"]],
        [["t", "b", "t", "a"]],
    ]
    assert "(b:Event {tenant: row[2], event_id: row[3]})" in made[0].text
    assert "(b:Summary {tenant: row[2], summary_id: row[3]})" in made[1].text


@given(st.permutations(range(12)))
def test_a_batch_is_applied_in_one_order_however_it_grew(order: list[int]) -> None:
    keys = [("t", "b"), ("t", "a"), ("s", "a")]
    operations: list[Operation] = [
        *(
            MergeEdge(
                type=CAUSED_BY.type, source=key, target=("t", "z"), values={"mechanism": DIRECT}
            )
            for key in keys
        ),
        *(RemoveEdge(type=FOLLOWS.type, source=key, target=("t", "z")) for key in keys),
        *(EnsureNode(EVENT.label, key) for key in keys),
        *(RemoveNode(EVENT.label, (key[0], f"{key[1]} gone")) for key in keys),
    ]
    batch = Operations()
    batch.extend(operations[n] for n in order)
    kinds = [type(operation) for operation in batch]
    assert kinds == [RemoveNode] * 3 + [EnsureNode] * 3 + [RemoveEdge] * 3 + [MergeEdge] * 3
    assert [op.key for op in batch if isinstance(op, EnsureNode)] == sorted(keys)


def test_nodes_and_placeholders_are_touched_in_the_order_of_their_keys() -> None:
    batch = Operations()
    batch.add(event_node(event(2), START))
    batch.add(EnsureNode(EVENT.label, event(1).key))
    batch.add(EnsureNode(EVENT.label, event(3).key))
    batch.add(EnsureNode(EVENT.label, event(2).key))
    (statement,) = cypher.statements(batch, STAGE)
    rows = statement.parameters["rows"]
    assert [tuple(row[:2]) for row in rows] == [event(n).key for n in (1, 2, 3)]
    assert [row[-1] for row in rows] == [False, True, False]
    assert len({len(row) for row in rows}) == 1


def test_texts_hold_no_values() -> None:
    batch = Operations()
    batch.add(event_node(event(1, tool_name="'}) DETACH DELETE n //"), START))
    ends = Link(1, event(1).event_id), Link(4, event(2).event_id)
    batch.add(follows_edge(("default", "'; DROP"), *ends))
    for statement in cypher.statements(batch, STAGE):
        assert "DETACH" not in statement.text
        assert "DROP" not in statement.text
        assert event(1).event_id not in statement.text


def test_an_event_carries_its_values_by_name() -> None:
    values = event_node(event(1, tool_name="search", importance_hint=3), Position(7, 8)).values
    assert (values["tool_name"], values["importance_hint"]) == ("search", 3)
    assert (values["global_position"], values["schema_version"]) == ("7-8", 1)


# -- neighbours ------------------------------------------------------------------------------------


def test_neighbours_in_a_chain() -> None:
    chain = [Link(ms, name) for ms, name in [(1, "a"), (1, "c"), (5, "a")]]
    assert neighbours_in([], chain[0]) == Neighbours(None, None, False)
    assert neighbours_in(chain, Link(1, "b")) == Neighbours(chain[0], chain[1], False)
    assert neighbours_in(chain, chain[1]) == Neighbours(chain[0], chain[2], True)
    assert neighbours_in(chain, Link(0, "z")) == Neighbours(None, chain[0], False)
    assert neighbours_in(chain, Link(9, "a")) == Neighbours(chain[2], None, False)


# -- digest ----------------------------------------------------------------------------------------


def test_the_digest_never_changes() -> None:
    """Golden: digests are compared between releases."""
    number = element_digest("Event", "default", "1", None, 5)
    assert digest_text(number) == digest_text(number + MODULUS)
    assert digest_text(number).startswith("3c90e10ed3c6612b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (1.0,)),
        ((1,), (True,)),
        ((1,), ("1",)),
        ((None,), ("null",)),
        ((None,), (float("nan"),)),
        ((None,), (float("inf"),)),
        ((None,), ()),
        (("ab", "c"), ("a", "bc")),
        (("a", None), (None, "a")),
        (((),), (None,)),
    ],
)
def test_values_of_different_type_or_place_differ(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert element_digest("Event", *one) != element_digest("Event", *other)


# -- errors ----------------------------------------------------------------------------------------


def all_errors(kind: type[errors.RecollectError]) -> list[type[errors.RecollectError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in all_errors(sub))]


def test_every_error_is_in_the_drawing() -> None:
    ours = [e for e in all_errors(errors.RecollectError) if e.__module__ == errors.__name__]
    for kind in ours:
        assert f"{kind.__name__}\n" in f"{errors.__doc__}\n".replace(" ", "\n")


def test_errors_say_what_they_know_and_survive_a_pickle() -> None:
    made = [
        errors.InvalidEvent((("status", "one of {these}"), ("(event)", "too large"))),
        errors.GraphUnavailable(reason="{braces} are no fields"),
        errors.Fenced(stage="projection", partition=1, position="2-3", generation=4),
    ]
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
    assert str(made[0]) == "Invalid event: status: one of {these}; (event): too large"
    assert "{braces}" in str(made[1])
    assert [error.retryable for error in made] == [False, True, False]
