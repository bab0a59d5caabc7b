"""The official suite of the protocol against `/mcp` of a real API.

No store is needed: what the suite asks of a server that is not made for it is what comes before
them. Each scenario that does not apply stands with its reason in `mcp_expected_failures.yaml`; one
that passes though it stands there fails the run, too.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.integration.api_support import running_api

pytestmark = pytest.mark.integration

PACKAGES: Final = ("node@24", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
"""The suite needs a newer Node than most machines have; npm has that, too."""
EXPECTED: Final = Path(__file__).with_name("mcp_expected_failures.yaml")
NOWHERE: Final = 1
"""A port that nobody listens on."""


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's command."""
    packages = [word for name in PACKAGES for word in ("--package", name)]
    command = ["npx", "--yes", *packages, "--call", shlex.join(("conformance", *arguments))]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module", autouse=True)
def _suite() -> None:
    if shutil.which("npx") is None:
        pytest.skip("npx is not on the path")
    if (tried := conformance("--help")).returncode:
        pytest.skip(f"npm cannot fetch the suite: {tried.stderr[-200:]}")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_what_applies_of_the_official_suite_passes(revision: str, tmp_path: Path) -> None:
    # A date is one to YAML, too.
    rows = {str(name): rows for name, rows in yaml.safe_load(EXPECTED.read_text()).items()}
    expected = tmp_path / "expected.yaml"
    expected.write_text(yaml.safe_dump({"server": [*rows["every revision"], *rows[revision]]}))
    stores = f"redis://127.0.0.1:{NOWHERE}/0", f"bolt://127.0.0.1:{NOWHERE}"
    with running_api(*stores, api_keys=(), insecure_dev=True) as api:
        options = ["--url", f"{api.url}/mcp", "--requirements", revision, "-o", str(tmp_path)]
        done = conformance("server", *options, "--expected-failures", str(expected))
    assert done.returncode == 0, done.stdout[-5_000:]
    assert "Baseline check passed" in done.stdout
