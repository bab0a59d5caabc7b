"""The driver as our processes load it."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
import pipelines.graph.client
from neo4j import _optional_deps
assert "pyarrow" not in sys.modules, "55 MB of every process"
assert _optional_deps.np.int64(3) == 3
"""


def test_the_driver_is_loaded_without_what_nobody_asks_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
