"""Full-text questions in Lucene's language, made from the words of people.

Whatever a person writes is words here, never an operator: all of Lucene's signs are escaped, and
its operators are only words in lower case. Every question names the tenant, at no weight, so that
the best of the tenant are found and not the best of all (`projections.schema.TENANT_TERM`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from projections.schema import TENANT_TERM, NodeRow, fulltext_index, tenant_term

MAX_WORDS: Final = 64
"""Of a question; Lucene refuses one of more than 1,024 clauses."""
MAX_WORD_CHARACTERS: Final = 80
MIN_PREFIX_CHARACTERS: Final = 3
"""Of a word that may be the beginning of another one: two would begin half of all names."""

# A question of stop words alone asks for nothing, so that all of the tenant would do: at score 0.

_WORD = re.compile(r"\w+(?:['\u2019.@:/+-]\w+)*")
_SIGNS = re.compile(r'([+\-&|!(){}\[\]^"~*?:\\/<>=.@\'\u2019])')


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, each once, in order; at most MAX_WORDS."""
    terms = (match.lower()[:MAX_WORD_CHARACTERS] for match in _WORD.findall(text))
    return list(dict.fromkeys(terms))[:MAX_WORDS]


def escaped(word: str) -> str:
    """The word as Lucene's query parser takes it for nothing but a word."""
    return _SIGNS.sub(r"\\\1", word.lower())


def found_text(row: NodeRow, variable: str, *, limit: str = "most") -> str:
    """Cypher for nodes of $tenant that hold $words, and `score`; `AND` may follow it."""
    return (
        f"CALL db.index.fulltext.queryNodes('{fulltext_index(row)}', $words, {{limit: ${limit}}}) "
        f"YIELD node AS {variable}, score WHERE {variable}.tenant = $tenant AND score > 0"
    )


def lucene_query(
    row: NodeRow, tenant: str, words: Sequence[str], *, prefixes: Iterable[str] = ()
) -> str | None:
    """The question for nodes of a tenant that hold any of the words; None: there are no words.

    Args:
        row: whose index is asked.
        tenant: whose nodes.
        words: each matches as the index takes words apart; so does one of several words, as a
            phrase.
        prefixes: matched by what begins with them too, at half the weight.
    """
    clauses = [f'"{_phrase(word)}"' if " " in word else escaped(word) for word in _bounded(words)]
    clauses += [
        f"{escaped(folded(prefix))}*^0.5"
        for prefix in _bounded(prefixes)
        if len(prefix) >= MIN_PREFIX_CHARACTERS and prefix.isalnum()
    ]
    if not clauses:
        return None
    columns = " ".join(f"{name}:({' '.join(clauses)})" for name in row.fulltext)
    return f"+{TENANT_TERM}:{tenant_term(tenant)}^0 +({columns})"


def folded(word: str) -> str:
    """Without accents: a prefix does not pass through the index's analyzer."""
    apart = unicodedata.normalize("NFKD", word.lower())
    return "".join(sign for sign in apart if not unicodedata.combining(sign))


def _phrase(words: str) -> str:
    return words.lower().replace("\\", " ").replace('"', " ").strip()


def _bounded(words: Iterable[str]) -> list[str]:
    bounded = (" ".join(word.split())[:MAX_WORD_CHARACTERS] for word in words)
    return list(dict.fromkeys(word for word in bounded if word))[:MAX_WORDS]
