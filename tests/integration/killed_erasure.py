"""A process that does what is left of an erasure, and is killed right before it records a step.

python -m tests.integration.killed_erasure STEP SUBJECT: what the step does is done by then.
Settings come from the environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from pipelines.ledger.vault import Fences
from pipelines.operations import erase
from pipelines.proof import verify
from pipelines.work.services import Services
from pipelines.work.settings import load_settings
from tests.stages.consolidated import without_models


def main(step: str, subject: str) -> None:
    """Go on with it."""
    for module in (erase, verify):
        module.make_fold = without_models  # type: ignore[attr-defined]  # no test of models
    erase.FORGOTTEN_WITHIN_S = 0.0  # type: ignore[attr-defined]  # nobody else has keys
    put = Fences.put_erasure

    def killed(self: Fences, key_id: bytes, told: Mapping[str, Any]) -> None:
        if told["step"] == step and "of" not in told:
            os.kill(os.getpid(), signal.SIGKILL)
        put(self, key_id, told)

    Fences.put_erasure = killed  # type: ignore[method-assign]  # this is the point
    with Services(load_settings()) as services:
        erase.finish(services, bytes.fromhex(subject))


if __name__ == "__main__":
    main(*sys.argv[1:])
