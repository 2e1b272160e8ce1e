"""The page in a real browser: clicks, keys, search, links, print, both themes, and what assistive technology reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler import compile_step
from compiler.plan.page.difference import write_difference
from graphspec import load
from tests.page.test_page import HOSTILE

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SETTLED = """() => {
    const hash = decodeURIComponent(location.hash.slice(1)), row = document.querySelector(".rows a[aria-current]");
    return hash.includes("/") ? row?.id === hash : row === null;
}"""
"""What is selected is what the address says."""
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.xdist_group("browser"),
]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # As root Chromium does not start in a sandbox.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return what opens the page of a spec; at the end nothing has been asked of a network, logged or raised."""
    told: list[str] = []
    contexts: list[Any] = []

    def open_(spec: str | Path, address: str = "", order: str = "fewest", **options: Any) -> Any:
        plan = compile_step(
            load(ROOT / "examples" / spec / f"{spec}.yaml" if isinstance(spec, str) else spec), order=order
        )
        path = tmp_path / "plan.html"
        path.write_text(plan.html(), encoding="utf-8")
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("dialog", lambda dialog: told.append(dialog.message))
        page.on("request", lambda request: None if request.url.startswith(path.as_uri()) else told.append(request.url))
        page.goto(path.as_uri() + address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert told == []


def chosen(page: Any) -> list[str]:
    """Return the names of the rows that are selected, after what a click has begun."""
    page.wait_for_timeout(20)
    page.wait_for_function(SETTLED)
    return page.eval_on_selector_all(".rows a[aria-current]", "found => found.map(each => each.id)")


def address(page: Any) -> str:
    return page.evaluate("location.hash")


def test_a_click_on_a_line_shows_its_details_its_edges_and_its_lines_in_the_spec(open_page: Open) -> None:
    page = open_page("gan-digits")
    assert page.is_visible("#summary")
    page.click("text=judged = discriminator(noisy_fake)")
    assert chosen(page) == ["train_step/judged"]
    assert address(page) == "#train_step/judged"
    assert not page.is_visible("#summary")
    details = page.inner_text("#chosen")
    assert "forward judged" in details
    assert "discriminator.params@1" in details
    assert "FREEZE: forward judged runs with the weights of discriminator frozen" in details
    assert "noisy_fake from evaluate noisy_fake" in details
    assert [line.strip() for line in page.locator(".source .lit").all_inner_texts()] == [
        "judged: {forward: discriminator, inputs: noisy_fake, after: step_d}"
    ]
    lit = page.eval_on_selector_all(".track.lit", "found => found.map(each => [+each.dataset.a, +each.dataset.b])")
    assert sorted(lit) == [[6, 14], [14, 15]]
    page.click("#chosen a:has-text('evaluate noisy_fake')")
    assert chosen(page) == ["train_step/noisy_fake"]


def test_keys_move_the_selection(open_page: Open) -> None:
    page = open_page("gan-digits")
    rows = page.eval_on_selector_all(".rows a", "found => found.map(each => each.id)")
    for key, row in (("j", 0), ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
        page.keyboard.press(key)
        assert chosen(page) == [rows[row]]
        assert page.evaluate("document.activeElement.id") == rows[row]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "details"
    page.keyboard.press("Escape")
    assert chosen(page) == []
    assert page.is_visible("#summary")
    page.keyboard.press("k")
    assert chosen(page) == [rows[-1]]
    assert page.eval_on_selector_all(".rows a[tabindex='0']", "found => found.length") == 1


def test_the_keys_are_told(open_page: Open) -> None:
    page = open_page("gan-digits")
    page.keyboard.press("?")
    assert page.is_visible("dialog")
    page.keyboard.press("j")
    assert chosen(page) == []
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog")
    page.click("#keys")
    page.click("dialog button")
    assert not page.is_visible("dialog")


def test_functions_are_chosen_by_tabs_steps_keys_and_the_slider(open_page: Open) -> None:
    page = open_page("stylegan2-lazy")
    shown = ".function:visible h2"
    assert page.locator(shown).all_inner_texts()[0].startswith("train_step_1")
    page.click(".tabs >> text=train_step_3")
    page.wait_for_selector("#train_step_3", state="visible")
    assert page.locator(shown).all_inner_texts()[0].startswith("train_step_3")
    page.click("text=pull = gradient of pull.loss for second.style >> visible=true")
    assert chosen(page) == ["train_step_3/pull"]
    page.keyboard.press("[")
    assert address(page) == "#train_step_2"  # which does not have it
    page.keyboard.press("]")
    page.keyboard.press("]")
    assert page.locator(shown).count() == 1
    page.click(".strip a[title='step 9 takes train_step_3']")
    assert address(page) == "#train_step_3"
    assert page.locator("nav [aria-current]").count() == 2  # the tab, and step 9 among the first 16
    page.click("text=step_d = gradient of step_d.loss for discriminator >> visible=true")
    assert chosen(page) == ["train_step_3/step_d.gradient"]
    page.keyboard.press("[")
    assert chosen(page) == ["train_step_2/step_d.gradient"]
    slider = page.get_by_role("slider", name="Function of the step")
    assert slider.input_value() == "2"
    slider.focus()
    slider.press("End")
    assert chosen(page) == ["train_step_3/step_d.gradient"]
    assert slider.get_attribute("aria-valuetext") == "train_step_3"
    page.click(".tabs >> text=train_step_1")
    page.wait_for_selector("#train_step_1", state="visible")
    assert slider.input_value() == "1"


def test_search_finds_lines_of_every_function(open_page: Open) -> None:
    page = open_page("stylegan2-lazy")
    page.keyboard.press("/")
    page.keyboard.type("step_r1")
    assert page.inner_text("#found") == "2 found"
    page.keyboard.press("Enter")
    assert chosen(page) == ["train_step_1/step_r1.gradient"]
    assert page.inner_text("#found") == "1 of 2"
    page.keyboard.press("Enter")
    assert chosen(page) == ["train_step_1/step_r1"]
    page.fill("#query", "nothing at all")
    assert page.inner_text("#found") == "0 found"
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    assert page.locator(".searched").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("remember")  # an op whose line does not have its name
    page.keyboard.press("Enter")
    assert chosen(page) == ["train_step_3/remember"]
    page.keyboard.press("Enter")
    assert chosen(page) == ["train_step_1/remember"]


def test_an_address_selects(open_page: Open) -> None:
    page = open_page("td3", "#train_step_2/step_actor")
    assert chosen(page) == ["train_step_2/step_actor"]
    assert page.locator(".function:visible").get_attribute("id") == "train_step_2"
    page.evaluate("location.hash = '#nothing'")
    assert page.locator(".function:visible").get_attribute("id") == "train_step_1"
    assert chosen(page) == []


def test_a_click_on_the_spec_selects_and_blocks_take_turns(open_page: Open) -> None:
    page = open_page("sac")
    page.click(".source a:text-is('q_1')")
    assert chosen(page) == ["train_step/q_1"]
    told = page.locator(".source li", has_text="told: {forward: actor")
    told.click()
    assert chosen(page) == ["train_step/next.told"]
    told.click()
    assert chosen(page) == ["train_step/now.told"]
    page.locator(".source li", has_text="name: sac").click()
    assert chosen(page) == ["train_step/now.told"]


def test_what_holds_an_update_back_is_an_arrow_with_a_reason(open_page: Open) -> None:
    page = open_page("simultaneous-gan", order="listed")
    arrows = page.locator(".holds")
    assert arrows.count() == 1
    assert (
        "gradient step_g still reads discriminator.params@0 through on_fake" in arrows.locator("title").text_content()
    )
    assert page.locator(".order:visible").count() == 0
    box = arrows.locator(".wait").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 0.5, box["y"] + box["height"] / 2)
    assert chosen(page) == ["train_step/step_d"]
    assert "DEFER: apply step_d is deferred after gradient step_g" in page.inner_text("#chosen")
    assert page.locator(".order.lit").count() > 0


def test_lines_stand_beside_their_marks(open_page: Open) -> None:
    page = open_page("sac", "#train_step/actor")
    tops = page.eval_on_selector_all(".rows a", "found => found.map(each => each.getBoundingClientRect().top)")
    top = page.locator(".body svg").bounding_box()["y"]
    assert tops == [top + 26 * number for number in range(len(tops))]
    left = page.locator(".rows .number").first.bounding_box()["x"]
    marks = page.eval_on_selector_all(
        ".body .node, .body .value", "found => found.map(each => each.getBoundingClientRect().right)"
    )
    assert max(marks) < left


def test_print_shows_every_function_and_no_panel(open_page: Open) -> None:
    page = open_page("stylegan2-lazy", color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator(".function:visible").count() == 3
    assert not page.is_visible("#side")
    assert not page.is_visible("nav")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(
        "document.querySelector('#plans').scrollHeight <= document.querySelector('#plans').clientHeight + 1"
    )


def test_the_theme_follows_the_system_until_it_is_switched(open_page: Open) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    page = open_page("gan-digits", color_scheme="dark")
    assert page.evaluate(color) == "rgb(13, 17, 23)"
    page.click("#theme")
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(color) == "rgb(13, 17, 23)"
    assert open_page("gan-digits", color_scheme="light").evaluate(color) == "rgb(255, 255, 255)"


def test_without_scripts_the_page_can_be_read_and_followed(open_page: Open) -> None:
    page = open_page("gan-digits", java_script_enabled=False)
    assert page.is_visible("text=judged = discriminator(noisy_fake)")
    page.click(".source a:text-is('judged')")
    assert page.url.endswith("#train_step/judged")


def test_a_hostile_spec_is_only_text(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(2)>.yaml"
    path.write_text(HOSTILE, encoding="utf-8")
    page = open_page(path, "#train_step/%3Cimg%20src=x%20onerror=alert(3)%3E")
    assert page.title().startswith("</script></style><img src=x onerror=alert(1)>")
    for row in page.locator(".rows a").all():
        row.click()
    assert page.locator("img").count() == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_in_a_difference(browser: Any, tmp_path: Path, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    old, new = (
        compile_step(load(ROOT / "examples" / name / f"{name}.yaml")) for name in ("cyclegan", "cyclegan-separate")
    )
    path = tmp_path / "difference.html"
    path.write_text(write_difference(old, new, "two", "declared"), encoding="utf-8")
    page = browser.new_page(color_scheme=theme)
    page.goto(path.as_uri())
    assert axe.run(page).response["violations"] == []
    page.close()


@pytest.mark.sample(7)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("spec", "at"), [("stylegan2-lazy", "#train_step_1/pull"), ("simultaneous-gan", "")])
@pytest.mark.parametrize("width", [1280, 800])
def test_axe_finds_nothing(open_page: Open, theme: str, spec: str, at: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(spec, at, order="listed", color_scheme=theme, viewport={"width": width, "height": 800})
    assert axe.run(page).response["violations"] == []
    page.keyboard.press("?")
    assert axe.run(page).response["violations"] == []
