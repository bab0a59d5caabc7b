"""Which models are here, told without loading them."""

from __future__ import annotations

import subprocess
import sys

from pipelines.adapters.embedder import make_embedder
from pipelines.adapters.nlp import make_recognizer
from pipelines.enriching import models_in_use
from pipelines.models.installed import installed_models
from pipelines.settings import Settings


def test_the_installed_models_are_named_as_a_worker_writes_them_into_checkpoints() -> None:
    settings = Settings()
    in_use = models_in_use(make_embedder(settings), make_recognizer(settings))
    assert installed_models(settings) == in_use


def test_without_the_model_nothing_can_be_said() -> None:
    assert installed_models(Settings(nlp_model="no_such_model")) is None


def test_asking_loads_no_model_and_nothing_that_models_are_made_of() -> None:
    code = (
        "import sys\n"
        "from pipelines.settings import Settings\n"
        "from pipelines.models.installed import installed_models\n"
        "print(installed_models(Settings()))\n"
        "heavy = {'numpy', 'spacy', 'onnxruntime', 'tokenizers', 'safetensors', 'torch'}\n"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
