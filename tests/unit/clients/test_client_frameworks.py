"""Adapters without their frameworks, which this environment does not have."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[3] / "clients" / "python"
EXTRAS = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_adapter_without_its_framework_says_what_to_install(extra: str) -> None:
    module = f"recollect.{extra.replace('-', '_')}"
    with pytest.raises(ImportError) as refused:
        import_module(module)
    assert f"{module} needs its framework" in str(refused.value)
    assert f"pip install 'recollect-client[{extra}]'" in str(refused.value)


def test_every_adapter_has_an_extra() -> None:
    modules = {
        path.stem.replace("_", "-")
        for path in (CLIENT / "src" / "recollect").glob("*.py")
        if "with needed(" in path.read_text(encoding="utf-8")
    }
    assert modules == set(EXTRAS)


def test_the_client_loads_no_adapter() -> None:
    code = (
        "import recollect, sys; print(sorted(n for n in sys.modules if n.startswith('recollect.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "recollect.memory" in loaded
    assert not any(f"recollect.{extra.replace('-', '_')}'" in loaded for extra in EXTRAS)
    assert "recollect.histories" not in loaded
