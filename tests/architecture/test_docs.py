"""Pages lead where they say: every link between files, every heading that is linked to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from enrichment.event_kinds import EventKind, event_kind
from pipelines.work.settings import Settings
from projections.events import parse_event

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2", re.MULTILINE | re.DOTALL)
NOW_MS = 1_800_000_000_000
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """All Markdown that is kept, and what is new."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


PAGES = [page for page in pages() if page.is_file()]


def prose(page: Path) -> str:
    """A page without its blocks and words of code."""
    return re.sub(r"`[^`\n]*`", "", CODE.sub("", page.read_text("utf-8")))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What may follow # in a link to a page: its headings, as GitHub names them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", CODE.sub("", page.read_text("utf-8")), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return frozenset(found)


def broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z+]+:", link):
            continue  # elsewhere: no test asks the network
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, c\n\n[1](#a-b-c) [2](#d) [3](gone.md) `[4](no)`\n\n```\n[5](no)\n```\n"
    )
    assert list(broken(page)) == ["#d: no such heading", "gone.md: no such file"]


def test_every_page_is_reached_from_the_map() -> None:
    """But for pages beside code."""
    reached: set[Path] = set()
    ahead = [ROOT / "docs/index.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            links = (link.partition("#")[0] for link in LINK.findall(prose(page)))
            targets = ((page.parent / link).resolve() for link in links if link.endswith(".md"))
            ahead += [target for target in targets if target.is_relative_to(ROOT)]
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - reached == set()


# Examples that need no service


def examples(name: str) -> list[Any]:
    """What the blocks of JSON of a page hold."""
    text = (ROOT / "docs/how-to" / name).read_text("utf-8")
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]


def test_the_payloads_of_the_page_are_of_the_kinds_that_it_says() -> None:
    envelope, *given = examples("payloads.md")
    required = {key: envelope[key] for key in list(envelope)[:6]}
    events = [parse_event({**required, **example}, now_ms=NOW_MS) for example in given]
    page = (ROOT / "docs/how-to/payloads.md").read_text("utf-8")
    told = re.findall(
        r"\*\*(\w+)\*\*", page[page.index("## Payloads, by kind") :].split("\n## ")[0]
    )
    assert [event_kind(event) for event in events] == told
    assert set(told) == {*EventKind} - {EventKind.INSTRUCTION}
    parse_event(envelope, now_ms=NOW_MS)


def test_the_keys_of_the_page_are_accepted() -> None:
    (keys,) = examples("users-and-tenants.md")
    accepted = Settings(api_keys=keys).api_keys
    assert [(key.name, key.user_id, key.all_users) for key in accepted] == [
        (key["name"], key.get("user_id"), key.get("all_users", False)) for key in keys
    ]
