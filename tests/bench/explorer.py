"""`python -m tests.bench.explorer URL KEY_FILE`: what the pages weigh, and how fast they appear.

Of a running API that holds something (`recollect demo --keep` does), in a Chromium of this machine:
bytes that cross the network for the first page and for the graph, the first paint in a browser that
knows nothing yet, and frames a second while 10,000 nodes are dragged and zoomed by a mouse: those
that the browser's trace says were presented with what the page changed. While they move their last
sharp picture is moved; how long the next takes is told, too. Without a graphics card all of it is
drawn by the processor, so a desktop is faster; the last line says by which.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser, Page

from pipelines.operations.demo import FAILURE
from tests.bench.machine import load
from tests.integration.explorer_support import Explorer, chromium
from tests.integration.picture_support import VIEW, drag, draw, presented, serve, wheel

NODES: Final = 10_000
PAUSE_MS: Final = 2_000
VISITS: Final = 5
WEIGHT: Final = """() => performance.getEntriesByType('resource')
  .concat(performance.getEntriesByType('navigation'))
  .filter(({ name }) => name.includes('/ui'))
  .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)"""
PAINT: Final = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  const paint = list.getEntries().find(({ name }) => name === 'first-contentful-paint');
  if (paint) resolve(paint.startTime);
}).observe({ type: 'paint', buffered: true }))"""
DRAWN_BY: Final = """() => {
  const context = document.createElement('canvas').getContext('webgl2');
  const told = context.getExtension('WEBGL_debug_renderer_info');
  return told ? context.getParameter(told.UNMASKED_RENDERER_WEBGL) : 'not told';
}"""
# Reading a pixel waits until all that was asked of the drawing is done.
SHARP: Final = """() => {
  const { sigma } = window.picture;
  const times = Array.from({ length: 5 }, () => {
    const begun = performance.now();
    sigma.render();
    for (const { gl } of Object.values(sigma.getCanvases())
      .map((canvas) => ({ gl: canvas.getContext('webgl2') })).filter(({ gl }) => gl)) {
      gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    }
    return performance.now() - begun;
  });
  return times.sort((a, b) => a - b)[2];
}"""


def weight(page: Page) -> float:
    """What the files of the page weigh that it has loaded, kB."""
    return float(page.evaluate(WEIGHT)) / 1_000


def first_paints(browser: Browser, url: str, key: str) -> list[float]:
    """Of the page of sessions, each time in a browser that has nothing of it, ms."""
    found = []
    for _ in range(VISITS):
        explorer = Explorer(browser, url)
        explorer.login(key)
        explorer.page.locator("main .room h1").wait_for()
        explorer.page.reload()
        explorer.page.locator("main .room h1").wait_for()
        found.append(float(explorer.page.evaluate(PAINT)))
        explorer.context.close()
    return found


def moves(browser: Browser, *, settled: bool) -> Iterator[str]:
    """What a person sees who drags and zooms; `settled`: after nodes have found their places."""
    page = browser.new_page(viewport=VIEW)
    serve(page)
    draw(page, NODES, settled=settled)
    page.wait_for_timeout(PAUSE_MS)
    for what, act in (("dragged", partial(drag, page, 240)), ("zoomed", partial(wheel, page, 75))):
        rate, slow_ms, drawn, spent_ms = presented(browser, page, act)
        yield (
            f"{what}: {rate:.0f} frames/s presented, 95 % within {slow_ms:.0f} ms, "
            f"all of it drawn {drawn} times, {spent_ms:.0f} ms of processor time a frame"
        )
        page.wait_for_timeout(PAUSE_MS)
    yield f"a sharp picture takes {page.evaluate(SHARP):.0f} ms"
    page.context.close()


def main(url: str, key_file: str) -> None:
    """Print the figures."""
    key = Path(key_file).read_text(encoding="utf-8").strip()

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    with chromium() as browser:
        paints = first_paints(browser, url, key)
        tell(f"first paint: {median(paints):.0f} ms ({min(paints):.0f} to {max(paints):.0f})")
        explorer = Explorer(browser, url, viewport=VIEW)
        explorer.login(key)
        page = explorer.page
        page.locator("main .room h1").wait_for()
        tell(f"first page: {weight(page):.0f} kB")
        explorer.open(f"graph/{FAILURE}")
        page.locator(".canvas[data-drawn]").wait_for()
        tell(f"with the graph: {weight(page):.0f} kB")
        for settled in (True, False):
            when = "stand still" if settled else "are still moved apart"
            for line in moves(browser, settled=settled):
                tell(f"{NODES:,} nodes that {when}, {line}")
        tell(f"drawn by {page.evaluate(DRAWN_BY)}; {os.cpu_count()} cores, load {load()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
