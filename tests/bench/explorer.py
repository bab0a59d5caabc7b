"""`python -m tests.bench.explorer URL KEY_FILE`: what the pages weigh, and how fast they appear.

Of a running API that holds something (`recollect demo --keep` does), in a Chromium of this machine:
bytes that cross the network for the first page and for the graph, the first paint in a browser that
knows nothing yet, and frames a second while a picture of 10,000 nodes is turned and zoomed. Without
a graphics card all of it is drawn by the processor, so a desktop is faster; frames say by which.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.sync_api import Browser, Page

from tests.bench.machine import load
from tests.integration.explorer_support import Explorer, chromium

NODES: Final = 10_000
MOVED_MS: Final = 5_000
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
FRAMES: Final = """async ({ count, length, still }) => {
  const { Picture } = await import('./picture.js');
  const room = document.createElement('div');
  room.style.cssText = 'position: fixed; inset: 60px 0 0 0; background: var(--card)';
  document.body.append(room);
  const picture = await Picture.in(room, { node() {}, edge() {} });
  const nodes = Array.from({ length: count }, (_, n) => ({ id: `n${n}`, label: `node ${n}`, kind: 'Event' }));
  const edges = nodes.slice(1).map(({ id }, n) =>
    ({ key: id, source: id, target: `n${(n * 7919) % (n + 1)}`, type: 'x', view: 'causal' }));
  const settled = new Promise((resolve) => {
    const place = picture.place.bind(picture);
    picture.worker.onmessage = ({ data }) => { place(data.nodes); if (data.done) resolve(); };
  });
  picture.add(nodes, edges);
  if (still) await settled;
  const camera = picture.sigma.getCamera();
  const times = [];
  const own = [];
  const begun = performance.now();
  await new Promise((resolve) => {
    const frame = (at) => {
      times.push(at);
      const turn = (at - begun) / length;
      const before = performance.now();
      camera.setState({ angle: turn, ratio: 1 - 0.5 * Math.sin(turn * Math.PI) });
      picture.sigma.render();
      own.push(performance.now() - before);
      if (performance.now() - begun < length) requestAnimationFrame(frame);
      else resolve();
    };
    requestAnimationFrame(frame);
  });
  const gaps = times.slice(1).map((at, n) => at - times[n]).sort((a, b) => a - b);
  own.sort((a, b) => a - b);
  const result = {
    rate: 1000 * gaps.length / (times.at(-1) - times[0]),
    slow: gaps[Math.floor(0.95 * gaps.length)],
    own: own[Math.floor(own.length / 2)],
  };
  picture.close();
  room.remove();
  return result;
}"""  # noqa: E501


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


def frames(page: Page, *, still: bool) -> dict[str, Any]:
    """While the picture is moved; `still`: after nodes have found their places."""
    given = {"count": NODES, "length": MOVED_MS, "still": still}
    told: dict[str, Any] = page.evaluate(FRAMES, given)
    return told


def main(url: str, key_file: str) -> None:
    """Print the figures."""
    key = Path(key_file).read_text(encoding="utf-8").strip()

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    with chromium() as browser:
        paints = first_paints(browser, url, key)
        tell(f"first paint: {median(paints):.0f} ms ({min(paints):.0f} to {max(paints):.0f})")
        explorer = Explorer(browser, url, viewport={"width": 1180, "height": 800})
        explorer.login(key)
        page = explorer.page
        page.locator("main .room h1").wait_for()
        tell(f"first page: {weight(page):.0f} kB")
        explorer.open("graph")
        for still in (True, False):
            told = frames(page, still=still)
            when = "nodes stand still" if still else "nodes are still moved apart"
            tell(
                f"{NODES:,} nodes, {when}: {told['rate']:.0f} frames/s, 95 % within "
                f"{told['slow']:.0f} ms; the page's own part of a frame {told['own']:.1f} ms"
            )
        tell(f"with the graph: {weight(page):.0f} kB")
        tell(f"drawn by {page.evaluate(DRAWN_BY)}; {os.cpu_count()} cores, load {load()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
