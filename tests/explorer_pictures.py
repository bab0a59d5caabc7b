"""Take the pictures of `docs/how-to/explorer.md`: `python -m tests.explorer_pictures URL KEY_FILE`.

Of an API that holds the demonstration (`recollect up --detach --all`, then `recollect import
pipelines/scenarios/payment_incident.jsonl --wait` and `recollect consolidate`).
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

from playwright.sync_api import Browser, Page

from pipelines.operations.demo import FAILURE
from tests.integration.explorer_support import Explorer, chromium

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
QUESTION: Final = "What tools did the support agent use for order 4711?"
AS_WEBP: Final = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL('image/webp', 0.72).split(',')[1];
}"""


class Picture(NamedTuple):
    """A place, and how it is looked at."""

    name: str
    place: str
    scheme: Literal["light", "dark"] = "light"
    width: int = 1180
    height: int = 800


PICTURES: Final = (
    Picture("sessions", "sessions"),
    Picture("session", "session/checkout-4711", height=900),
    Picture("why", f"event/{FAILURE}", scheme="dark", height=900),
    Picture("ask", f"ask?q={quote(QUESTION)}"),
    Picture("graph", f"graph/{FAILURE}"),
    Picture("phone", "session/support-301", scheme="dark", width=390, height=800),
)


class Camera:
    """Keeps what a page shows, as WebP.

    Args:
        browser: that makes it so, in a page where no policy forbids it, for a picture is data.
    """

    def __init__(self, browser: Browser) -> None:
        self._converting = browser.new_page()

    def take(self, page: Page, file: Path) -> None:
        """Write a picture of what is to be seen now."""
        png = base64.b64encode(page.screenshot()).decode()
        file.write_bytes(base64.b64decode(self._converting.evaluate(AS_WEBP, png)))


def main(url: str, key_file: str) -> None:
    """Write all of them."""
    key = Path(key_file).read_text(encoding="utf-8").strip()
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser:
        explorer, camera = Explorer(browser, url), Camera(browser)
        explorer.login(key)
        page = explorer.page
        page.locator(".sessions").wait_for()
        for picture in PICTURES:
            page.set_viewport_size({"width": picture.width, "height": picture.height})
            page.emulate_media(color_scheme=picture.scheme)
            explorer.open(picture.place)
            page.wait_for_timeout(4_000)  # until nodes stand still, and what comes later is there
            camera.take(page, FOLDER / f"explorer-{picture.name}.webp")


if __name__ == "__main__":
    main(*sys.argv[1:])
