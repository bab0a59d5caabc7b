"""The TypeScript client: its own tests against a running API, its types, and its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.local.servers import Neo4jServer, ValkeyServer
from tests.integration.api_support import WRITE_KEY, Api, running_api
from tests.integration.stack import Stack
from tests.integration.workers import OF_CLIENTS
from tests.memory_stack import Worker
from tests.servers import emptied_neo4j, emptied_valkey
from tests.typescript_models import CLIENT, TARGET, generated

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "typescript-client.md"
OLDEST_NODE = 20


def npm(*arguments: str, cwd: Path = CLIENT, **environment: str) -> str:
    """What npm prints; fails as it does."""
    done = subprocess.run(
        ["npm", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed() -> None:
    """The packages that it is built with, from the lock."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node is older than {OLDEST_NODE}: {version.stdout.strip()}")
    try:
        npm("ci", "--no-audit", "--no-fund")
    except AssertionError as error:
        if re.search(r"ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|network", str(error)):
            pytest.skip("no registry of packages is in reach")
        raise


@pytest.fixture(scope="module")
def api(installed: None, valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    """An API whose graph a worker of the first stage keeps up, and whose streams end soon."""
    stack = Stack(emptied_valkey(valkey), emptied_neo4j(neo4j))
    stack.graph.ensure_schema()
    with (
        running_api(valkey.url, neo4j.url, **OF_CLIENTS, stream_life_s=0.1) as running,
        Worker(stack),
    ):
        yield running
    stack.close()


def test_the_types_are_those_of_the_api(installed: None) -> None:
    """Else: `python -m tests.typescript_models`."""
    assert TARGET.read_text(encoding="utf-8") == generated()


def test_its_own_tests_pass(api: Api) -> None:
    printed = npm("test", RECOLLECT_API_URL=api.url, RECOLLECT_API_KEY=WRITE_KEY)
    assert re.search(r"^# pass 11$", printed, re.MULTILINE), printed


def test_the_package_is_used_as_its_page_says(api: Api, tmp_path: Path) -> None:
    """Packed, installed without anything else, compiled with its own types, and run."""
    npm("run", "build")
    npm("pack", "--ignore-scripts", "--pack-destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    npm("install", "--offline", "--no-audit", "--no-fund", str(package), cwd=tmp_path)
    (code,) = re.findall(r"```typescript\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(code.strip().splitlines()) <= 13
    given = f"const url = {api.url!r};\nconst key = {WRITE_KEY!r};\n"
    (tmp_path / "page.ts").write_text(given + code, encoding="utf-8")
    chosen = {"target": "es2022", "module": "nodenext", "lib": ["es2023", "dom"], "types": []}
    config = {"compilerOptions": {"strict": True, **chosen}, "files": ["page.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config), encoding="utf-8")
    compiler = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
    for part in (["node", str(compiler)], ["node", "page.js"]):
        done = subprocess.run(part, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    assert list((tmp_path / "node_modules").glob("[!.]*")) == [
        tmp_path / "node_modules" / "recollect-client"
    ]
    assert "My card was charged twice" in done.stdout
    assert "the gateway did not answer" in done.stdout
    assert re.findall(r"^(message|call|failure) [0-9a-f-]{36}", done.stdout, re.MULTILINE) == [
        "message",
        "call",
        "failure",
    ]
