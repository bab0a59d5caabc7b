"""`recollect verify` beside a bare read of the same ledger and the same rows of the graph."""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

from tests.bench.limits import bare_read
from tests.bench.stack import Stack, finished


def measure(stack: Stack, rounds: int, *options: str) -> dict[str, Any]:
    """Figures on ledger and graph as they are, in turns.

    Args:
        stack: what is verified.
        rounds: how many turns count.
        options: of the command; `--fast` for the sums alone.
    """
    verify_s, bare_s, peaks, cpu_s = [], [], [], []
    events = 0
    for number in range(rounds + 1):
        bare = bare_read(stack.redis, stack.streams, stack.blue)
        child = stack.child("verify", "--json", *options, stdout=subprocess.PIPE)
        output, peak, used = finished(child)
        report = json.loads(output)
        assert report["ok"], report
        events = report["events"]
        if number == 0:
            continue  # the first of each plans its query
        bare_s.append(bare)
        verify_s.append(report["duration_s"])
        peaks.append(peak)
        cpu_s.append(used)
    ratios = [bare / verify for bare, verify in zip(bare_s, verify_s, strict=True)]
    return {
        "events_per_s": round(events / statistics.median(verify_s)),
        "limit_events_per_s": round(events / statistics.median(bare_s)),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "peak_mb": round(max(peaks), 1),
        "cpu_us_per_event": round(statistics.median(cpu_s) / events * 1e6),
    }
