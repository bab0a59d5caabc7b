"""The reference pages of the enrichment, made from the tables that its rules are.

Tables become tables. Rules that are prose stand in the docstring of the module that follows them,
and are taken over from there, so that they are written down once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from enrichment import (
    causality,
    clauses,
    entities,
    facts,
    histories,
    importance,
    keywords,
    payloads,
    relations,
    resolution,
    similarity,
    text,
    values,
)
from enrichment.clause_patterns import ADJECTIVES, PATTERNS
from enrichment.fields import FIELDS
from enrichment.patterns import RECOGNISERS
from pipelines.work.stages import STAGES
from projections.system_events import SYSTEM_EVENTS

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]


def enrichment_page(table: Table) -> str:
    """What follows the note of `docs/reference/enrichment.md`."""
    sections = (
        ("Limits", _limits(table)),
        ("Importance", _importance(table)),
        ("Identifiers in texts", _identifiers(table)),
        ("Entities", _entities(table)),
        ("Keys of arguments and results", _fields(table)),
        ("Who is the same", _prose(resolution)),
        ("Similar events", _prose(similarity)),
        ("Inferred causes", _causes(table)),
        ("Values that are followed", _prose(values)),
        ("Facts from structured results", _prose(facts)),
        ("Facts from sentences", _sentences(table)),
        ("Relations", _relations(table)),
        ("Intervals of facts", _prose(histories)),
    )
    return "# Enrichment\n\nThe rules of Stage 2, from the code that follows them. " + (
        "How they work together: [enrichment](../explanation/enrichment.md).\n\n"
        + "\n".join(f"## {title}\n\n{body}" for title, body in sections)
    )


def statements_page(table: Table) -> str:
    """What follows the note of `docs/reference/statements.md`."""
    rows = [
        (f"`{name}`", row.owner, "yes" if row.public else "no", row.meaning)
        for name, row in SYSTEM_EVENTS.items()
        if row.owner in STAGES  # what no stage applies yet is no use to know
    ]
    return (
        "# Statements\n\nEvents under `memory.` are no events of agents: they say something about "
        "the memory itself, become no Event nodes, and are applied by one stage. Producers send "
        "the public ones like any event (`POST /v1/events`); `POST /v1/admin/entities/{id}/"
        "corrections` makes a correction.\n\n"
        + table(("Type", "Applied by", "Public", "What it says"), rows)
        + "\n## Payloads\n\n"
        + _prose(payloads)
    )


def _prose(module: ModuleType) -> str:
    """A module's docstring without its first line, which says what the module is for."""
    _, _, body = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    # Markdown wants a blank line before a list, a docstring does without.
    body = re.sub(r"(?m)^(?!\s*(?:[-*]|\d+\.) )(\S.*)\n(?=(?:[-*]|\d+\.) )", r"\1\n\n", body)
    return f"{body}\n"


def _limits(table: Table) -> str:
    rows = [
        ("text of an event", f"{text.TEXT_CHARACTERS:,} characters"),
        ("of it kept in the graph", f"{text.STORED_CHARACTERS:,} characters"),
        ("keywords of an event", str(keywords.MAX_KEYWORDS)),
        ("mentions of an event", str(entities.MAX_MENTIONS)),
        ("facts of an event", str(facts.MAX_FACTS)),
        ("name of an entity", f"{entities.MAX_NAME_BYTES} bytes"),
        ("events before an event that may be its causes (WINDOW)", str(causality.WINDOW)),
        ("inferred causes of an event", str(causality.MAX_CAUSES)),
        ("cosine of similar events", f"above {similarity.THRESHOLD}"),
        ("similar events of an event", str(similarity.CAP)),
        ("cosine of names that may be the same", f"from {resolution.SAME_COSINE}"),
        ("cosine of names a language model is asked about", f"from {resolution.ASK_COSINE}"),
    ]
    return table(("What", "Limit"), rows)


def _importance(table: Table) -> str:
    rows = [(rule.name, f"{rule.points:+d}", rule.meaning) for rule in importance.RULES]
    weights = importance.HINT_WEIGHT + 1
    return (
        f"{importance.BASE} plus the points of the rules that hold, within {importance.LOWEST} and "
        f"{importance.HIGHEST}. With a hint of the producer: {importance.HINT_WEIGHT} parts of the "
        f"hint and one of that, divided by {weights}, halves rounded up.\n\n"
        + table(("Rule", "Points", "When"), rows)
    )


def _identifiers(table: Table) -> str:
    rows = [(row.label, row.meaning) for row in RECOGNISERS]
    return "Leftmost first, then the longest, then the row that comes first.\n\n" + table(
        ("Kind", "Such as"), rows
    )


def _entities(table: Table) -> str:
    kinds = [
        ("named in a text", f"`{label}`", entity_type, subtype)
        for label, (entity_type, subtype) in entities.LABELS.items()
    ]
    kinds += [
        ("identifier in a text", f"`{label}`", entity_type, label)
        for label, entity_type in entities.PATTERN_TYPES.items()
    ]
    return f"{_prose(entities)}\n" + table(("Found as", "Label", "Type", "Subtype"), kinds)


def _fields(table: Table) -> str:
    rows = [
        (
            f"`{row.keys.pattern}`",
            row.entity_type or "no entity",
            row.subtype or ("-" if row.entity_type is None else "what the key or the value says"),
            "yes" if row.exact else "-",
        )
        for row in FIELDS
    ]
    return (
        "The key in snake case matches a row in full; the first row that fits wins, a key that "
        "fits none gives nothing. *Exact*: a code that is the same only as itself.\n\n"
        + table(("Keys", "Type", "Subtype", "Exact"), rows)
    )


def _causes(table: Table) -> str:
    rules = [(f"`{row.name}`", f"{row.confidence:g}", row.meaning) for row in causality.RULES]
    kinds = [
        (kind, f"{confidence:g}", str(causality.PRODUCERS[kind]))
        for kind, confidence in causality.VALUE_CONFIDENCE.items()
    ]
    return (
        f"{_prose(causality)}\n"
        + table(("Rule", "Confidence, at most", "When"), rules)
        + "\nFor value flow:\n\n"
        + table(("Kind of value", "Confidence", "Outputs that may hold it (PRODUCERS)"), kinds)
    )


def _sentences(table: Table) -> str:
    verbs = [
        (
            f"{lemma} {after}".strip() + (" …" if after != "by" else " (passive) …"),
            f"`{row.relation}`",
            row.target,
            "present only" if row.state else "any",
        )
        for (lemma, after), row in PATTERNS.items()
    ]
    verbs += [
        (f"be {word} {after} …", f"`{row.relation}`", row.target, "present only")
        for (word, after), row in ADJECTIVES.items()
    ]
    return f"{_prose(clauses)}\n" + table(("Verb", "Relation", "Object", "Tense"), verbs)


def _relations(table: Table) -> str:
    groups: dict[tuple[str, bool], list[str]] = {}
    for name, row in relations.RELATIONS.items():
        groups.setdefault((row.edge_type, row.functional), []).append(f"`{name}`")
    rows = [
        (edge_type, "yes" if functional else "-", ", ".join(sorted(names)))
        for (edge_type, functional), names in groups.items()
    ]
    return f"{_prose(relations)}\n" + table(("Edge type", "One at a time", "Relations"), rows)
