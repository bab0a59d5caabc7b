"""The process that embeds queries: `python -m pipelines.models.query_encoder`.

The API loads no model (a process of it would grow by hundreds of megabytes, and computing would
hold up its other requests), so `adapters.query_embedder` starts this one beside it. Frames are
those of `pipelines.models.analyst`: first goes out `{"ready": true}` or `{"error": reason}`; then
for each frame that comes in, a number of 4 bytes and a text, there goes out the same number and
its vector, 384 little-endian float32, or the number alone when the model gave up. It ends with its
input, and so with its parent.
"""

from __future__ import annotations

import os
import sys

import orjson

from pipelines.models.analyst import read_frame, write_frame
from pipelines.models.embedder import make_embedder
from pipelines.work.settings import load_settings
from projections.errors import ModelFailed, ModelUnavailable, RecollectError


def main(settings_json: str) -> int:
    """Serve until the input ends.

    Args:
        settings_json: the settings of the model, as a JSON object.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come between the frames
    try:
        embedder = make_embedder(load_settings(**orjson.loads(settings_json)))
        embedder.embed(["ready"])  # what is slow the first time is not the first query's
    except RecollectError as error:
        write_frame(answers, orjson.dumps({"error": str(error)[:300]}))
        return 1
    write_frame(answers, orjson.dumps({"ready": True}))
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        number, text = frame[:4], frame[4:].decode("utf-8", "replace")
        try:
            write_frame(answers, number + embedder.embed([text])[0])
        except (ModelFailed, ModelUnavailable):
            write_frame(answers, number)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
