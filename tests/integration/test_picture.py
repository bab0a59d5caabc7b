"""A graph of very many nodes under a mouse: quick while it moves, sharp and clickable at rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.explorer_support import CHROMIUM, NO_CHROMIUM, chromium
from tests.integration.picture_support import CENTRE, SITE, VIEW, drag, draw, serve, wheel
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

MANY: Final = 1_600  # above what is drawn in full while it moves
FEW: Final = 20
# Where a node is on the screen by the camera, and where the moved picture shows it.
_PLACES: Final = """async (state) => {
  const { sigma, moving, graph } = picture;
  const there = (id) => sigma.graphToViewport(graph.getNodeAttributes(id),
    { cameraState: sigma.getCamera().getState() });
  const before = ['n3', 'n700'].map(there);
  sigma.getCamera().setState(state);
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  const shown = new DOMMatrix(getComputedStyle(moving.last).transform);
  const told = ['n3', 'n700'].map(there);
  return {
    moved: Math.hypot(told[0].x - before[0].x, told[0].y - before[0].y),
    apart: Math.max(...before.map((at, n) => {
      const { x, y } = shown.transformPoint(new DOMPoint(at.x, at.y));
      return Math.hypot(x - told[n].x, y - told[n].y);
    })),
    seen: Object.fromEntries([...moving.room.querySelectorAll('canvas')]
      .map((one) => [one.className, getComputedStyle(one).visibility])),
    drawn: seen.drawn,
  };
}"""
# Edges are thinner than a pixel: theirs are between their colour and the card's.
_PIXELS: Final = """() => {
  const { last, context } = picture.moving;
  const { data } = context.getImageData(0, 0, last.width, last.height);
  const colour = (name) => {
    context.fillStyle = picture.colour(name);
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const [node, edge, card] = ['kind-Event', 'view-causal', 'card'].map(colour);
  const counted = { nodes: 0, edges: 0, card: 0 };
  for (let at = 0; at < data.length; at += 4) {
    const same = (other) => other.every((value, n) => data[at + n] === value);
    const warm = (rgb, start = 0) => rgb[start] - rgb[start + 2];
    if (same(card)) counted.card += 1;
    else if (same(node)) counted.nodes += 1;
    else if (warm(data, at) > (warm(edge) + warm(card)) / 4) counted.edges += 1;
  }
  return counted;
}"""
_HELD: Final = """() => {
  picture.worker.terminate();
  // What came before is drawn in the next frame.
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}"""
_NODE: Final = """(id) => {
  const { x, y } = picture.sigma.graphToViewport(picture.graph.getNodeAttributes(id));
  const room = picture.moving.room.getBoundingClientRect();
  return { x: x + room.x, y: y + room.y };
}"""
# A node that nothing else lies upon, near the middle of the screen.
_FREE: Final = """() => picture.graph.nodes().find((id) => {
  const { x, y } = picture.sigma.graphToViewport(picture.graph.getNodeAttributes(id));
  return Math.abs(x - 590) < 200 && Math.abs(y - 370) < 150
    && picture.sigma.getNodeAtPosition({ x: Math.round(x), y: Math.round(y) }) === id;
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip(NO_CHROMIUM)
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport=VIEW)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    serve(opened)
    yield opened
    assert wrong == []
    opened.context.close()


def rest(page: Page) -> None:
    """Until a sharp picture stands again."""
    calm = "!picture.moving.isMoving && !picture.moving.room.classList.contains('moving')"
    wait_until(lambda: page.evaluate(calm), "the picture is sharp again")


def drawn(page: Page) -> int:
    return int(page.evaluate("seen.drawn"))


def hold_layout(page: Page) -> None:
    """Nodes stay where they are, and what was drawn is counted from now on."""
    page.evaluate(_HELD)
    rest(page)
    page.evaluate("seen.drawn = 0")


def test_what_moves_is_not_drawn_anew_until_it_rests(page: Page) -> None:
    draw(page, MANY, settled=False)
    hold_layout(page)
    before = page.evaluate("picture.sigma.getCamera().getState()")
    x, y = CENTRE
    page.mouse.move(x, y)
    page.mouse.down()
    for n in range(30):
        page.mouse.move(x + 3 * n, y + n)
    # Held for longer than it takes to count as rest: what comes next shall find the page free.
    page.wait_for_timeout(500)
    assert drawn(page) == 0, "all of it was drawn while it moved"
    page.mouse.up()
    rest(page)
    assert drawn(page) == 1
    wheel(page, 5)
    rest(page)
    assert drawn(page) < 5, "all of it was drawn while it was zoomed"
    after = page.evaluate("picture.sigma.getCamera().getState()")
    assert after["x"] != before["x"]
    assert after["ratio"] < before["ratio"]


@pytest.mark.parametrize(
    "state",
    [
        {"x": 0.6, "y": 0.45},
        {"ratio": 0.4},
        {"ratio": 1.7, "x": 0.3},
        {"angle": 0.7, "ratio": 0.8, "y": 0.6},
    ],
    ids=str,
)
def test_the_moved_picture_stands_where_the_camera_says(
    page: Page, state: dict[str, float]
) -> None:
    draw(page, MANY, settled=False)
    hold_layout(page)
    page.mouse.move(*CENTRE)
    page.mouse.down()  # what is held does not come to rest, however slow the machine is
    told: dict[str, Any] = page.evaluate(_PLACES, state)
    assert told["drawn"] == 0
    assert told["moved"] > 20, "the camera did not move"
    assert told["apart"] < 0.5
    seen = told["seen"]
    assert {name for name, how in seen.items() if how == "visible"} == {"last", "sigma-mouse"}
    page.mouse.up()
    rest(page)
    assert page.evaluate("getComputedStyle(picture.moving.last).visibility") == "hidden"


def test_the_moved_picture_shows_nodes_and_edges(page: Page) -> None:
    """What is kept has the colours of both, on the card's."""
    draw(page, MANY, settled=False)
    hold_layout(page)
    page.evaluate("picture.sigma.render()")
    pixels = page.evaluate(_PIXELS)
    assert pixels["nodes"] > 1_000, pixels
    assert pixels["edges"] > 1_000, pixels
    assert pixels["card"] > 100_000, pixels


def test_a_node_is_clicked_where_it_stands_after_a_move(page: Page) -> None:
    draw(page, MANY, settled=False)
    hold_layout(page)
    drag(page, 20)
    rest(page)
    wheel(page, 6)
    rest(page)
    wanted = wait_until(lambda: page.evaluate(_FREE), "a node lies free")
    place = page.evaluate(_NODE, wanted)
    page.mouse.click(round(place["x"]), round(place["y"]))
    wait_until(lambda: page.evaluate("seen.clicked.length"), "a node is clicked")
    assert page.evaluate("seen.clicked") == [wanted]


def test_places_that_come_while_it_moves_are_taken_at_rest(page: Page) -> None:
    draw(page, MANY, settled=False)
    hold_layout(page)
    page.mouse.move(*CENTRE)
    page.mouse.down()
    told = page.evaluate("""() => {
      picture.sigma.getCamera().setState({ x: 0.55 });
      const places = new Float32Array(picture.order.length * 10).fill(0);
      picture.order.forEach((id, n) => { places[10 * n] = n; places[10 * n + 1] = n % 7; });
      picture.place(places);
      return picture.graph.getNodeAttributes('n5').x === 5;
    }""")
    assert told is False, "nodes were moved while the camera moved"
    page.mouse.up()
    rest(page)
    assert page.evaluate("picture.graph.getNodeAttributes('n5').x") == 5


def test_nodes_are_not_moved_apart_while_the_camera_moves(page: Page) -> None:
    """That takes a processor, and there may be no other."""
    draw(page, MANY, settled=False)
    page.evaluate("""() => {
      window.told = 0;
      const take = picture.worker.onmessage;
      picture.worker.onmessage = (message) => { window.told += 1; take(message); };
    }""")
    x, y = CENTRE
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y)
    page.wait_for_timeout(1_000)  # what was being reckoned has come
    # All steps are still to do, however many were done until now on a quick machine.
    page.evaluate("told = 0; picture.arrange()")
    page.mouse.move(x + 60, y)
    page.wait_for_timeout(500)
    assert page.evaluate("told") == 0
    page.mouse.up()
    rest(page)
    wait_until(lambda: page.evaluate("told") > 0, "they go on")


def test_of_few_nodes_each_frame_is_drawn(page: Page) -> None:
    draw(page, FEW)
    page.evaluate("seen.drawn = 0")
    drag(page, 20)
    assert drawn(page) > 5
    assert page.evaluate("picture.moving.isMoving") is False


def test_a_picture_that_is_left_draws_nothing_later(page: Page) -> None:
    draw(page, MANY, settled=False)
    hold_layout(page)
    page.evaluate("picture.sigma.getCamera().setState({ x: 0.6 }); picture.close()")
    page.wait_for_timeout(500)
    assert drawn(page) == 0
    assert page.url.startswith(SITE)
