"""`python -m tests.bench.domains [DOMAIN …]`, of those that stand here, `support` and `coding`.

Each domain is made by the generator of the developers' set (`shared/bench/agents`), in a small and
a large memory, imported into a small edition of its own, consolidated, asked with default settings,
and judged by the set's scorer, which says what its columns mean. `support` and `coding` are that
set's own. The others stand here as data, tools, errors and what people say; who wrote them knew
neither the product nor each other. How the questions of a clinic and of freight are put was
written by a third, those of all others by who wrote that domain.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

import orjson

from pipelines.local.data_folder import read_holder
from tests.bench.ranker.world import DATA, lines
from tests.bench.small import own_edition

OWN: Final = (
    "clinic",
    "freight",
    "estate",
    "crewdesk",
    "observatory",
    "skydesk",
    "waterworks",
    "filmset",
    "museum",
    "traveldesk",
    "bakery",
    "claims",
    "hiring",
    "lawfirm",
    "salesops",
    "datalab",
    "household",
    "newsroom",
    "campus",
    "secops",
    "hotel",
    "relief",
    "gamestudio",
    "pharmacy",
    "gpucloud",
    "bank",
    "clusterops",
    "webshop",
    "wetlab",
    "telco",
    "payroll",
    "mlresearch",
    "deepresearch",
    "cityhall",
    "evcharge",
    "itdesk",
    "webpilot",
    "plantops",
    "farmcoop",
    "eventcrew",
)
KEPT_APART: Final = (
    "clinic",
    "freight",
    "lawfirm",
    "gpucloud",
    "bank",
    "clusterops",
    "webshop",
    "wetlab",
    "telco",
    "payroll",
    "mlresearch",
    "deepresearch",
    "cityhall",
    "evcharge",
    "itdesk",
    "webpilot",
    "plantops",
    "farmcoop",
    "eventcrew",
)
"""Nothing of these is learned from."""
LEARNED_FROM: Final = tuple(name for name in OWN if name not in KEPT_APART)
OF_THE_SET: Final = ("support", "coding")
SEED: Final = 11


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.domains", description=__doc__)
    parser.add_argument("domains", nargs="*", default=OWN, metavar="domain")
    parser.add_argument("--keep", type=Path, help="a folder for data and results")
    options = parser.parse_args()
    for name in options.domains:
        if name not in (*OWN, *OF_THE_SET):
            parser.error(f"{name}: no domain; there are {', '.join((*OWN, *OF_THE_SET))}")
    with TemporaryDirectory() as folder:
        for name in options.domains:
            judge(name, (options.keep or Path(folder)) / name)


def judge(name: str, folder: Path) -> None:
    """Make a domain's data, ask an edition that holds it, and print the scores."""
    folder.mkdir(parents=True)
    make(name, folder / "set")
    questions, results = folder / "set/questions.jsonl", folder / "results.jsonl"
    tenants = sorted({row["tenant"] for row in lines(questions)})
    with own_edition(name) as edition:
        edition.fill(lines(folder / "set/events.jsonl"))
        edition.run("consolidate")
        where = read_holder(edition.folder / "data")
        assert where is not None
        access = ["--url", where["api_url"], "--key-file", where["api_key_file"]]
        everyone = ["--all-users", '{"user_id": "*"}']
        script("ask.py", questions, results, *access, "--tenant", *tenants, *everyone)
    script("score.py", questions, results, "--tenant", *tenants)


def make(
    name: str,
    folder: Path,
    *,
    sizes: Sequence[str] = ("S", "L"),
    asked_at: datetime | None = None,
) -> None:
    """Events and questions of a domain.

    Args:
        name: of it.
        folder: for the files.
        sizes: of the memories: small ones, large ones.
        asked_at: when the questions are asked; None: when it was last six in the evening.
    """
    sys.path.insert(0, str(DATA))
    try:
        generator = importlib.import_module("make")
        if name in OWN:
            sys.modules[name] = _module(name)
        day = (datetime.now(tz=UTC) - timedelta(hours=18)).date()
        evening = datetime.combine(day, time(hour=18))
        generator.make((name,), sizes, SEED, asked_at or evening, folder)
    finally:
        sys.path.remove(str(DATA))


def _module(name: str) -> ModuleType:
    told = orjson.loads(Path(__file__).with_name(f"{name}.json").read_bytes())
    module = ModuleType(name)
    for constant, value in told.items():
        setattr(module, constant, value)
    slots: dict[str, Any] = told["SLOTS"]
    module.SLOTS = {  # type: ignore[attr-defined]  # a pair of numbers is a range, and no choice
        slot: tuple(spec) if isinstance(spec[0], int) else spec for slot, spec in slots.items()
    }
    return module


def script(name: str, *words: object) -> None:
    """Run a script of the set."""
    sys.stdout.flush()
    subprocess.run([sys.executable, str(DATA / name), *map(str, words)], check=True)


if __name__ == "__main__":
    main()
