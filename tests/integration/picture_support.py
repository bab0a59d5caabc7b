"""The graph's picture alone, in a page without an API: very many nodes, moved as by a person."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson
from playwright.sync_api import Browser, CDPSession, Page, Route, ViewportSize

from api.routes.explorer import FILES, HEADERS
from tests.waiting import wait_until

SITE: Final = "http://pictures.invalid/ui/"
VIEW: Final[ViewportSize] = {"width": 1180, "height": 800}
CENTRE: Final = (590, 430)
# `picture` and `seen` are left in the window: what was clicked, and how often all was drawn.
_DRAW: Final = """async ({ count, settled }) => {
  const { Picture } = await import('./picture.js');
  const room = document.createElement('div');
  room.className = 'canvas';
  room.style.cssText = 'position: fixed; inset: 60px 0 0 0; height: auto';
  document.body.append(room);
  const seen = { clicked: [], drawn: 0 };
  const picture = await Picture.in(room, { node: (id) => seen.clicked.push(id), edge() {} });
  const nodes = Array.from({ length: count },
    (_, n) => ({ id: `n${n}`, label: `node ${n}`, kind: 'Event' }));
  const edges = nodes.slice(1).map(({ id }, n) =>
    ({ key: id, source: id, target: `n${(n * 7919) % (n + 1)}`, type: 'x', view: 'causal' }));
  const standing = new Promise((resolve) => picture.worker.addEventListener('message',
    ({ data }) => { if (data.done || !settled) resolve(); }));
  picture.add(nodes, edges);
  await standing;
  picture.sigma.on('afterRender', () => { seen.drawn += 1; });
  Object.assign(window, { picture, seen });
}"""
_TRACED: Final = ["cc", "benchmark"]
_PRESENTED: Final = "STATE_PRESENTED_ALL"  # with what the page itself changed


class Moved(NamedTuple):
    """What a person saw in a stretch of time.

    Attributes:
        rate: frames a second that were presented.
        slow_ms: 95 % of them came within this time after the one before.
        drawn: how often all of the graph was drawn anew meanwhile.
        spent_ms: of processor time for a frame, by all processes of the browser; what others do on
            the machine does not change it.
    """

    rate: float
    slow_ms: float
    drawn: int
    spent_ms: float


def serve(page: Page) -> None:
    """Answer what the page asks for from the package, under the policy of the API."""

    def answer(route: Route) -> None:
        file = FILES.get(route.request.url.removeprefix(SITE))
        if file is None:
            route.fulfill(status=404)
        else:
            route.fulfill(body=file.body, content_type=file.media_type, headers=dict(HEADERS))

    page.context.route(f"{SITE}**", answer)
    page.goto(f"{SITE}index.html")


def draw(page: Page, count: int, *, settled: bool = True) -> None:
    """A graph of `count` nodes; `settled`: until they have found their places."""
    page.evaluate(_DRAW, {"count": count, "settled": settled})
    wait_until(lambda: page.evaluate("!picture.moving.isMoving"), "the picture stands still")


def drag(page: Page, moves: int) -> None:
    """With the button held; it is let go of afterwards."""
    x, y = CENTRE
    page.mouse.move(x, y)
    page.mouse.down()
    for n in range(moves):
        page.mouse.move(x + 200 * math.sin(n / 15), y + 150 * math.sin(n / 11))
    page.mouse.up()


def wheel(page: Page, turns: int) -> None:
    """Nearer and farther, over and over."""
    page.mouse.move(*CENTRE)
    for n in range(turns):
        page.mouse.wheel(0, -60 if n % 30 < 15 else 60)
        page.wait_for_timeout(40)


def presented(browser: Browser, page: Page, act: Callable[[], None]) -> Moved:
    """What comes to the screen while `act` is done, as the browser's own trace tells it."""
    page.evaluate("seen.drawn = 0")
    machine = browser.new_browser_cdp_session()
    spent_s = -_spent_s(machine)
    browser.start_tracing(page=page, categories=_TRACED)
    act()
    spent_s += _spent_s(machine)
    drawn: int = page.evaluate("seen.drawn")
    traced = orjson.loads(browser.stop_tracing())["traceEvents"]
    times = sorted(_ends(traced))
    gaps = sorted(after - before for before, after in pairwise(times))
    return Moved(
        rate=len(gaps) / sum(gaps),
        slow_ms=1000 * gaps[int(0.95 * len(gaps))],
        drawn=drawn,
        spent_ms=1000 * spent_s / len(gaps),
    )


def _spent_s(machine: CDPSession) -> float:
    told = machine.send("SystemInfo.getProcessInfo")
    return float(sum(process["cpuTime"] for process in told["processInfo"]))


def _ends(traced: list[dict[str, Any]]) -> list[float]:
    """When frames were presented, s: what begins and ends has a number, which is used again."""
    begun: dict[str, str] = {}
    ends = []
    for event in sorted(traced, key=lambda event: event["ts"]):
        if event["name"] != "PipelineReporter":
            continue
        number = f"{event['pid']} {event['id2']['local']}"
        if event["ph"] == "b":
            begun[number] = event["args"]["frame_reporter"]["state"]
        elif begun.pop(number, None) == _PRESENTED:
            ends.append(event["ts"] / 1e6)
    return ends
