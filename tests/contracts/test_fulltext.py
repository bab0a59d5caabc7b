"""Full text is searched within one tenant, and whatever people write is words."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence

import neo4j
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.graph.cypher import merge_nodes_text, set_nodes_text
from pipelines.graph.fulltext import escaped, found_text, lucene_query, words_of
from pipelines.graph.neo4j import Neo4jGraph
from projections.schema import ENTITY, EVENT, NodeRow, tenant_term, tenant_term_text
from tests.servers import event_indexes

# Split, stemmed or dropped by an analyzer, or the beginning of one another.
TENANTS = [
    "a",
    "the",
    "running",
    "acme",
    "acme-corp",
    "acme-corp-2",
    "acme_corp",
    "acme0",
    "0",
    "9",
]
TENANT_NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)
STAGE = "enrichment"


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest) -> Iterator[neo4j.Driver]:
    url = request.getfixturevalue("neo4j").url
    with (
        neo4j.GraphDatabase.driver(url, notifications_min_severity="OFF") as driver,
        event_indexes(url),
    ):
        writer = Neo4jGraph(driver, browsed=True)
        writer.clear()
        writer.ensure_schema()
        for tenant in TENANTS:
            write(driver, tenant, {"1": "she runs the shop", "2": "quiet as a mouse"})
            name(driver, tenant, {"e": "Café Zürich", "f": "It", "g": "John O'Neil-Smith"})
        write(driver, "crowd", {str(n): "runs runs runs" for n in range(500)})
        driver.execute_query("CALL db.index.fulltext.awaitEventuallyConsistentIndexRefresh()")
        yield driver


def write(driver: neo4j.Driver, tenant: str, texts: dict[str, str]) -> None:
    names = [prop.name for prop in EVENT.owned(STAGE)]
    rows = [
        [tenant, own_id, *(text if name == "text" else None for name in names)]
        for own_id, text in texts.items()
    ]
    driver.execute_query(
        f"UNWIND $rows AS row CREATE (:{EVENT.label} {{tenant: row[0], event_id: row[1]}})",
        rows=rows,
    )
    driver.execute_query(set_nodes_text(EVENT.label, STAGE), rows=rows)


def name(driver: neo4j.Driver, tenant: str, names: dict[str, str]) -> None:
    given: dict[str, Callable[[str], str]] = {"canonical_name": str.lower, "name": str}
    rows = [
        [
            tenant,
            own_id,
            *(
                given[prop.name](own) if prop.name in given else 1 if "seen" in prop.name else None
                for prop in ENTITY.owned(STAGE)
            ),
            True,
        ]
        for own_id, own in names.items()
    ]
    text = merge_nodes_text(ENTITY.label, STAGE, with_placeholders=False)
    driver.execute_query(text, rows=rows)


def found(
    driver: neo4j.Driver,
    row: NodeRow,
    tenant: str,
    words: Sequence[str],
    prefixes: Sequence[str] = (),
    most: int = 10,
) -> list[str]:
    text = found_text(row, "n") + f" RETURN n.tenant AS tenant, n.{row.key[1]} AS id"
    asked = lucene_query(row, tenant, words, prefixes=prefixes)
    if asked is None:
        return []
    rows = driver.execute_query(text, words=asked, most=most, tenant=tenant).records
    assert {one["tenant"] for one in rows} <= {tenant}
    return [one["id"] for one in rows]


@pytest.mark.integration
@pytest.mark.parametrize("tenant", TENANTS)
def test_the_best_of_a_tenant_are_found_beside_a_crowd(driver: neo4j.Driver, tenant: str) -> None:
    assert found(driver, EVENT, tenant, ["running"], most=1) == ["1"]
    assert found(driver, EVENT, tenant, ["nobody", "mouse"], most=1) == ["2"]
    assert found(driver, EVENT, tenant, ["unheard"]) == []


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "prefixes", "expected"),
    [
        (["cafe"], [], ["e"]),
        (["CAFÉ zurich"], [], ["e"]),
        (["zurich cafe"], [], []),
        ([], ["zür"], ["e"]),
        ([], ["zu"], []),
        (["it"], [], []),
        (["o'neil-smith"], [], ["g"]),
        ([], ["smi"], ["g"]),
    ],
)
def test_names_are_found_as_people_write_them(
    driver: neo4j.Driver, words: list[str], prefixes: list[str], expected: list[str]
) -> None:
    assert found(driver, ENTITY, "acme-corp", words, prefixes) == expected


@pytest.mark.integration
def test_what_people_write_is_never_an_operator(driver: neo4j.Driver) -> None:
    for sign in string.punctuation + "\u2019\u201c\u00a0":
        for text in (sign, f"{sign}runs", f"runs{sign}", f"ru{sign}ns", f"{sign} runs {sign}"):
            for words in (words_of(text), [text], [f"{text} shop"]):
                found(driver, EVENT, "acme", words, prefixes=words)
    for text in ("runs AND NOT shop", "-shop runs", "*:*", "tenant_term:crowd03", "[a TO z]", "~2"):
        assert set(found(driver, EVENT, "acme", words_of(text))) <= {"1"}
        assert set(found(driver, EVENT, "acme", [escaped(text)])) <= {"1"}
    assert found(driver, EVENT, "acme", ["the", "of"]) == []
    assert found(driver, EVENT, "acme", [str(number) for number in range(5_000)]) == []


@given(st.text(max_size=60))
def test_no_word_holds_a_bare_sign(text: str) -> None:
    for word in words_of(text):
        bare = escaped(word).replace("\\\\", "")
        for before, sign in zip(" " + bare, bare, strict=False):
            assert sign not in '+-&|!(){}[]^"~*?:/' or before == "\\"


@given(st.sets(TENANT_NAMES, min_size=2, max_size=2))
def test_every_tenant_has_a_term_of_its_own(tenants: set[str]) -> None:
    terms = {tenant_term(tenant) for tenant in tenants}
    assert len(terms) == 2
    assert all(term.isalnum() and term[-1].isdigit() for term in terms)


@pytest.mark.integration
def test_the_graph_writes_the_same_term(driver: neo4j.Driver) -> None:
    text = f"UNWIND $tenants AS t RETURN {tenant_term_text('t')} AS term"
    terms = [row["term"] for row in driver.execute_query(text, tenants=TENANTS).records]
    assert terms == [tenant_term(tenant) for tenant in TENANTS]
