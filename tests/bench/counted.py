"""`recollect` in this process, and afterwards how many texts each model computed, into a file.

    python -m tests.bench.counted FILE rebuild --into green --json

A command serves no metrics, so nobody outside could see that a rebuild computed nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

from pipelines.cli.main import main as run_command
from pipelines.observe import metrics


def main() -> None:
    """Run the command that follows the file's name, and leave with its exit code."""
    file, *arguments = sys.argv[1:]
    try:
        run_command(arguments)
    finally:
        counts = {
            model: metrics.REGISTRY.get_sample_value(
                "recollect_model_texts_total", {"model": model}
            )
            for model in get_args(metrics.Model)
        }
        Path(file).write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    main()
