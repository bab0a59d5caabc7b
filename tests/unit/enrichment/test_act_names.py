"""What a tool does, by its name: wherever the verb stands, and by the method of a request."""

from __future__ import annotations

import pytest

from enrichment.act_names import first_word, is_reader


@pytest.mark.parametrize(
    ("tool", "verb"),
    [
        ("charge_card", "charge"),
        ("crm.contacts/update", "update"),
        ("crewList.transfer", "transfer"),
        ("wiki_lookup", "lookup"),
        ("timetableShow", "show"),
        ("cart_item_remove", "remove"),
        ("order_book", "order"),  # is read, as any book
        ("GET /desk/v2/exams", "get"),
        ("PATCH /desk/v2/exams", "update"),
        ("DELETE /desk/v2/exams/7", "delete"),
        ("POST /cart/commit", "commit"),
        ("GET /desk/find", "find"),
        ("GET /channel/schedule", "get"),
        ("PUT /channel/schedule", "schedule"),
        ("GETAWAY plan", "plan"),
        ("", ""),
    ],
)
def test_the_verb_of_a_tool_is_found_wherever_it_stands(tool: str, verb: str) -> None:
    assert first_word(tool) == verb


@pytest.mark.parametrize(
    ("tool", "reads"),
    [
        *(("wiki_lookup", True), ("GET /desk/exams", True), ("get_lookup_table", True)),
        ("GET /channel/schedule", True),
        *(("PATCH /desk/exams", False), ("guest_update", False), ("directory_put", False)),
    ],
)
def test_what_only_looks_changes_nothing(tool: str, reads: bool) -> None:
    assert is_reader(tool) is reads
