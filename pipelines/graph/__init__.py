"""The graph: the one room that speaks Cypher."""

import sys

if "pyarrow" not in sys.modules:
    # The driver loads it wherever it is installed, for parameters that none of ours are: a tenth of
    # a second of every command, and 36 MB of every process. `None` says that it is not there.
    sys.modules["pyarrow"] = None  # type: ignore[assignment]
    import neo4j  # noqa: F401 - loaded now, without it

    del sys.modules["pyarrow"]
