"""Five tasks done in the explorer as a person would: `python -m tests.explorer_tasks [FOLDER]`.

Starts services of its own with the demonstration, does the tasks in a Chromium, and leaves a
picture of each step in the folder (`docs/pictures`), and of some pages before and afterwards. Tests
do the same, and look otherwise.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from playwright.sync_api import Browser, ViewportSize, expect

from pipelines.local.servers import Neo4jServer, ValkeyServer
from tests.explorer_pictures import FOLDER, Camera
from tests.integration.api_support import ADMIN_KEY
from tests.integration.explorer_support import (
    ANA,
    SEALED,
    ZOE,
    Explored,
    Explorer,
    chromium,
    explored,
    under_way,
)
from tests.servers import running


class Seen(NamedTuple):
    """How a page is looked at, and what stands there once all of it does."""

    place: str
    whole: str
    size: ViewportSize
    scheme: Literal["light", "dark"] = "light"


BEFORE: Final = {
    "explorer-entity": Seen("entity/entity%3Acheckout", ".history", {"width": 1180, "height": 760}),
    "explorer-user": Seen(f"user/{ANA}", "main .card", {"width": 1180, "height": 900}, "dark"),
}
AFTERWARDS: Final = {
    "explorer-operations": Seen("operations", ".rebuild", {"width": 1180, "height": 1180}),
    "explorer-operations-phone": Seen(
        "operations", ".rebuild", {"width": 390, "height": 1180}, "dark"
    ),
}
Look = Callable[[str], None]
"""Looks at the page as it is now; told what the step is called."""


class Task(NamedTuple):
    """What somebody wants, and how it is done.

    Attributes:
        name: in one word.
        do: with a page that is logged in, the memory whose workers do their part, and what is
            called after each step.
        tenant: whose memory; empty: that of the demonstration.
    """

    name: str
    do: Callable[[Explorer, Explored, Look], None]
    tenant: str = ""


def find_why_a_payment_failed(person: Explorer, memory: Explored, look: Look) -> None:
    """From the sessions with failures to the change behind one of them."""
    page = person.page
    person.open("sessions")
    page.get_by_label("with failures").check()
    expect(page.locator(".sessions li.failing")).to_have_count(3)
    look("failures")
    page.get_by_role("link", name=re.compile("^order.charged_twice")).click()
    why = page.get_by_role("list", name="Causes, the nearest first")
    expect(why.locator(".step")).to_have_count(12)
    expect(why).to_contain_text("gateway did not answer within 3 s")
    look("causes")
    why.get_by_role("link", name=re.compile("^config.changed")).click()
    expect(page.locator("h1")).to_contain_text("payments.gateway.timeout_s")
    expect(page.locator(".json")).to_contain_text("r2209")
    expect(page.get_by_text("Looking for causes…")).to_have_count(0)
    look("change")
    page.get_by_role("link", name="deploy-88").first.click()
    expect(page.locator("h1")).to_have_text("deploy-88")


def see_what_changed_between_two_days(person: Explorer, memory: Explored, look: Look) -> None:
    """From the list of sessions to what one day alone has."""
    page = person.page
    person.open("sessions")
    page.get_by_role("link", name="Compare two days").click()
    wednesday = page.locator(".card").filter(has_text="Only on Wednesday")
    expect(wednesday).to_contain_text("order.charged_twice")
    expect(wednesday.get_by_role("link", name=ANA)).to_be_visible()
    look("compared")


def correct_a_wrong_fact(person: Explorer, memory: Explored, look: Look) -> None:
    """What was never true is withdrawn, and what held before holds again."""
    page = person.page
    person.open(f"user/{ANA}")
    held = page.locator(".card").filter(has_text="What holds")
    expect(held.locator(".fact .head")).to_have_text([re.compile("^Lisbonholds")])
    held.get_by_role("button", name=re.compile("^Not true:")).press("Enter")
    dialog = page.get_by_role("dialog", name="Is this not true?")
    dialog.get_by_label("Why").fill("she never moved")
    look("asked")
    dialog.get_by_role("button", name="Withdraw it").click()
    expect(dialog.get_by_text("Working…")).to_be_visible()
    memory.work()
    expect(dialog).to_contain_text("It is withdrawn.")
    page.keyboard.press("Escape")
    expect(held.locator(".fact .head")).to_have_text([re.compile("^Berlinholds")])
    former = page.locator(".card").filter(has_text="What held before")
    expect(former.locator(".fact .head")).to_have_text([re.compile("^Lisbonwithdrawn")])
    look("corrected")


def retry_a_dead_letter(person: Explorer, memory: Explored, look: Look) -> None:
    """What could not be folded is tried again by a worker."""
    page = person.page
    person.open("operations")
    letters = page.locator(".card").filter(has_text="Dead letters")
    letters.get_by_role("button", name="Try again").scroll_into_view_if_needed()
    look("letter")
    letters.get_by_role("button", name="Try again").click()
    expect(letters).to_contain_text("waits for a worker")
    memory.work()
    expect(letters).to_contain_text("None: every stage folded everything.")
    look("folded")


def erase_a_person(person: Explorer, memory: Explored, look: Look) -> None:
    """From somebody's session to the receipt; not without their id being typed."""
    page = person.page
    page.locator(".sessions .row").click()
    page.get_by_role("link", name=ZOE).click()
    page.get_by_role("button", name="Erase…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 event of the ledger")
    typed = dialog.get_by_label("Type the id of the user")
    typed.fill("zo")
    typed.press("Enter")
    expect(dialog).to_contain_text("That is not the id of the user")
    typed.fill(ZOE)
    expect(dialog).not_to_contain_text("That is not the id of the user")
    look("asked")
    dialog.get_by_role("button", name="Erase for good").click()
    expect(dialog).to_contain_text("The keys are destroyed")
    memory.work()
    expect(dialog).to_contain_text(f"{ZOE} is erased.")
    expect(dialog.locator(".badge.good")).to_have_count(5)
    look("erased")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("h1")).to_have_text("Sessions")


TASKS: Final = (
    Task("why", find_why_a_payment_failed),
    Task("days", see_what_changed_between_two_days),
    Task("correct", correct_a_wrong_fact),
    Task("retry", retry_a_dead_letter),
    Task("erase", erase_a_person, tenant=SEALED),
)
"""In an order in which each finds what it needs."""


def done(task: Task, browser: Browser, memory: Explored, look: Callable[[Explorer], Look]) -> None:
    """Do a task in a window of its own; nothing may go wrong in it.

    Args:
        task: what is done.
        browser: where.
        memory: of which.
        look: for the window: what is called after each step.
    """
    person = Explorer(browser, memory.api.url, viewport={"width": 1000, "height": 760})
    person.login(ADMIN_KEY, task.tenant)
    person.page.locator("main .room h1").wait_for()
    task.do(person, memory, look(person))
    assert person.wrong == []
    person.context.close()


def main(folder: Path) -> None:
    """Take a picture of each step."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as made,
        running(ValkeyServer(Path(made) / "valkey")) as valkey,
        running(Neo4jServer(Path(made) / "neo4j")) as neo4j,
        explored(valkey, neo4j, Path(made)) as memory,
        chromium() as browser,
    ):
        camera = Camera(browser)
        pictures(browser, memory, camera, BEFORE, folder=folder)
        for task in TASKS:

            def look(person: Explorer, name: str = task.name) -> Look:
                return lambda step: camera.take(person.page, folder / f"task-{name}-{step}.webp")

            done(task, browser, memory, look)
        under_way(memory)
        pictures(browser, memory, camera, AFTERWARDS, folder=folder, tenant=SEALED)


def pictures(
    browser: Browser,
    memory: Explored,
    camera: Camera,
    seen: Mapping[str, Seen],
    *,
    folder: Path,
    tenant: str = "",
) -> None:
    """Write what an operator sees of some pages."""
    operator = Explorer(browser, memory.api.url)
    operator.login(ADMIN_KEY, tenant)
    page = operator.page
    page.locator("main .room h1").wait_for()
    for name, look_of in seen.items():
        page.set_viewport_size(look_of.size)
        page.emulate_media(color_scheme=look_of.scheme)
        operator.open(look_of.place)
        page.locator(look_of.whole).first.wait_for()
        camera.take(page, folder / f"{name}.webp")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
