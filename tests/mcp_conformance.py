"""`make test-mcp-conformance`: the official suite of the protocol against `/mcp` of a real API.

Needs Node 22 and the network, which the other tests do not. No store is needed: what the suite asks
of a server that is not made for it is what comes before them. Each scenario that does not apply
stands with its reason in `mcp_expected_failures.yaml`; one that passes though it stands there fails
the run, too. Arguments go on to the suite.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.integration.api_support import running_api

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2026-07-28", "2025-11-25")
EXPECTED = Path(__file__).with_name("mcp_expected_failures.yaml")
NOWHERE = 1
"""A port that nobody listens on."""


def main(arguments: list[str]) -> int:
    """Run the suite for each revision; how many runs failed."""
    if shutil.which("npx") is None:
        sys.stderr.write("the suite needs Node 22: npx is not on the path\n")
        return 1
    failed = 0
    stores = f"redis://127.0.0.1:{NOWHERE}/0", f"bolt://127.0.0.1:{NOWHERE}"
    with (
        running_api(*stores, api_keys=(), insecure_dev=True) as api,
        TemporaryDirectory(prefix="recollect-mcp-") as folder,
    ):
        for revision in REVISIONS:
            expected = Path(folder, f"{revision}.yaml")
            expected.write_text(yaml.safe_dump({"server": expected_failures(revision)}))
            command = ["npx", "--yes", SUITE, "server", "--url", f"{api.url}/mcp"]
            command += ["--requirements", revision, "--expected-failures", str(expected)]
            done = subprocess.run([*command, "-o", folder, *arguments], check=False)
            failed += done.returncode != 0
    return failed


def expected_failures(revision: str) -> list[str]:
    """Scenarios that do not apply."""
    # A date is one to YAML, too.
    rows = {str(name): rows for name, rows in yaml.safe_load(EXPECTED.read_text()).items()}
    return [*rows["every revision"], *rows[revision]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
