"""`python -m tests.releases FOLDER`: write what this version writes, once, when it is released."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pipelines.local.servers import ValkeyServer
from tests.releases import write_release
from tests.servers import running

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, running(ValkeyServer(Path(folder))) as server:
        write_release(server.url, Path(folder), Path(sys.argv[1]))
