"""Which models are here, told without loading them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from pipelines.models.installed import installed_models
from pipelines.models.loaded import Models
from pipelines.work.settings import DeclaredTool, Settings

TOOLS: dict[str, Any] = {"tools": {"dispense": {"about": "patient"}}}
INT8: dict[str, Any] = {"embedding_model": "all-MiniLM-L6-v2-int8"}
LANGUAGE_MODEL = {"llm_url": "http://127.0.0.1:1/v1", "llm_model": "large"}


@pytest.mark.parametrize(
    "given",
    [{}, LANGUAGE_MODEL, LANGUAGE_MODEL | {"llm_tasks": ("disambiguation",)}, TOOLS, INT8],
    ids=["rules alone", "a language model", "one that decides and adds nothing", "tools", "int8"],
)
def test_the_models_are_named_as_a_worker_writes_them_into_checkpoints(
    given: dict[str, Any],
) -> None:
    settings = Settings(**given)
    assert installed_models(settings) == Models(settings).names


def test_what_is_declared_of_tools_is_part_of_the_name() -> None:
    plain, declared = installed_models(Settings()), installed_models(Settings(**TOOLS))
    other = installed_models(Settings(tools={"dispense": DeclaredTool(about="ward")}))
    assert plain is not None
    assert str(declared).startswith(f"{plain} tools@")
    assert len({plain, declared, other}) == 3


def test_another_embedder_is_another_name_though_its_weights_are_the_same() -> None:
    plain, int8 = installed_models(Settings()), installed_models(Settings(**INT8))
    assert int8 == str(plain).replace("all-MiniLM-L6-v2@", "all-MiniLM-L6-v2-int8@")


def test_int8_is_of_one_backend() -> None:
    with pytest.raises(ValueError, match="no other one has all-MiniLM-L6-v2-int8"):
        Settings(embedding_backend="sentence-transformers", **INT8)


def test_without_the_model_nothing_can_be_said() -> None:
    assert installed_models(Settings(nlp_model="no_such_model")) is None


def test_asking_loads_no_model_and_nothing_that_models_are_made_of() -> None:
    code = (
        "import sys\n"
        "from pipelines.work.settings import Settings\n"
        "from pipelines.models.installed import installed_models\n"
        "print(installed_models(Settings()))\n"
        "heavy = {'numpy', 'spacy', 'onnxruntime', 'tokenizers', 'safetensors', 'torch'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
