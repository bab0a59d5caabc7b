#!/usr/bin/env bash
# Derives the image's two hashed locks from requirements.lock, which decides every version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
compile() {
    .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --constraints requirements.lock "$@"
}
compile --extra models --output-file deploy/requirements.lock pyproject.toml
echo "hatchling" | compile --output-file deploy/build-requirements.lock -
