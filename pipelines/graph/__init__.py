"""The graph: the one room that speaks Cypher.

The driver loads pyarrow if it finds it, for results as tables that nobody here asks for: 55 MB and
half a second of every process. It is told that there is none.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_OPTIONAL = "neo4j._optional_deps"


def _found(name: str) -> Any:
    if name != "np":
        raise AttributeError(name)
    return importlib.import_module("numpy")


def _spare_arrow() -> None:
    """Stand in for the module by which the driver looks for what it can do without."""
    stand_in = ModuleType(_OPTIONAL)
    vars(stand_in).update(dict.fromkeys(("pa", "pa_compute", "pd")), __getattr__=_found)
    sys.modules.setdefault(_OPTIONAL, stand_in)


_spare_arrow()
