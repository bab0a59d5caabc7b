"""The jars of Neo4j Community, fetched once into the user's cache and checked by sha256.

The fetched program is Neo4j's own (GPLv3) and runs as a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from projections.errors import OperationFailed

NEO4J_VERSION = "2026.08.1"
_DOWNLOADS = 12
_TIMEOUT_S = 60.0


class _Damaged(Exception):
    """What came is not what the list says; a cut connection looks like this too."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the list."""

    sha256: str
    size: int
    path: str
    """Below the repository's base address, and below the cache folder."""


def neo4j_jars() -> list[Jar]:
    """The checked-in list of jars, in class path order."""
    text = files("pipelines.local").joinpath("neo4j-jars.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return [Jar(sha256=digest, size=int(size), path=path) for digest, size, path in rows]


def neo4j_cache_dir() -> Path:
    """`recollect/neo4j-VERSION` in the user's cache folder (`XDG_CACHE_HOME` or `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "recollect" / f"neo4j-{NEO4J_VERSION}"


def fetch_neo4j(progress: bool = False) -> Path:
    """Make sure all jars are cached and return their folder.

    What is cached with the right size is kept: each file was checked before it got its name.
    The repository's base address is `RECOLLECT_MAVEN_URL`, else Maven Central.

    Args:
        progress: show a bar on standard error while fetching.

    Raises:
        OperationFailed: a jar could not be fetched, or is not the one in the list.
    """
    folder = neo4j_cache_dir()
    missing = [jar for jar in neo4j_jars() if _size(folder / jar.path) != jar.size]
    if not missing:
        return folder
    base_url = os.environ.get("RECOLLECT_MAVEN_URL") or _maven_central()
    columns = (
        *(TextColumn("Neo4j {task.fields[done]}/{task.fields[count]} jars"), BarColumn()),
        *(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
    )
    bar = Progress(*columns, console=Console(stderr=True), disable=not progress)
    total = sum(jar.size for jar in missing)
    with bar, ThreadPoolExecutor(_DOWNLOADS) as pool:
        task = bar.add_task("", total=total, done=0, count=len(missing))
        futures = {pool.submit(_fetch, jar, base_url, folder): jar for jar in missing}
        for done, future in enumerate(as_completed(futures), 1):
            jar = futures[future]
            try:
                future.result()
            except (OSError, _Damaged) as error:
                pool.shutdown(cancel_futures=True)
                raise OperationFailed(reason=f"cannot fetch {jar.path}: {error}") from error
            bar.update(task, advance=jar.size, done=done)
    return folder


@retry(
    retry=retry_if_exception_type((OSError, _Damaged)),
    wait=wait_random_exponential(multiplier=0.5, max=10),
    stop=stop_after_attempt(5),
    reraise=True,
)
def _fetch(jar: Jar, base_url: str, folder: Path) -> None:
    target = folder / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    url = f"{base_url.rstrip('/')}/{jar.path}"
    if not url.startswith(("https://", "http://", "file://")):
        raise _Damaged("RECOLLECT_MAVEN_URL must start with https:, http: or file:")
    digest = hashlib.sha256()
    # A name of its own until it is checked: two fetches at once, or a kill, leave no bad jar.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".fetch-", delete=False) as part:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
                while block := answer.read(1 << 16):
                    digest.update(block)
                    part.write(block)
            if digest.hexdigest() != jar.sha256:
                raise _Damaged("its sha256 is not the one in neo4j-jars.txt")
            part.close()
            Path(part.name).replace(target)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _maven_central() -> str:
    # Loaded when needed: jgo imports an HTTP stack that a running server has no use for.
    from jgo.constants import MAVEN_CENTRAL_URL

    return str(MAVEN_CENTRAL_URL)
