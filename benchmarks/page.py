"""Size of the page of a plan, and time to its first paint in Chromium: ``python -m benchmarks.page``."""

from __future__ import annotations

import gzip
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from benchmarks.compile_time import make_wide
from compiler import compile_step
from graphspec import load

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAIRS = 143
"""Seven ops each: 1,001."""
ROUNDS = 5
PAINTED = """() => new Promise((resolve) => new PerformanceObserver((list) => {
    const paint = list.getEntries().find((each) => each.name === "first-contentful-paint");
    if (paint) resolve([paint.startTime, performance.getEntriesByType("navigation")[0].loadEventEnd]);
}).observe({ type: "paint", buffered: true }))"""


def measure(browser: Browser, path: Path) -> tuple[float, float]:
    """Return the median of the milliseconds to the first paint, and to the end of loading."""
    found: list[list[float]] = []
    for _ in range(ROUNDS):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(path.as_uri())
        found.append(page.evaluate(PAINTED))
        context.close()
    first, last = zip(*found, strict=True)
    return statistics.median(first), statistics.median(last)


def main() -> None:
    """Print a table."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    specs: dict[str, str | Path] = {name: EXAMPLES / name / f"{name}.yaml" for name in ("sac", "stylegan2-lazy")}
    specs["1,001 ops"] = make_wide(PAIRS).replace(", every: 2", "")
    heads = ("svg ms", "html ms", "KB", "gzip KB", "paint ms", "load ms")
    print(f"{'spec':15} {'lines':>6}", *(f"{head:>9}" for head in heads))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, spec in specs.items():
            plan = compile_step(load(spec))
            begin = time.perf_counter()
            plan.svg()
            middle = time.perf_counter()
            text = plan.html()
            end = time.perf_counter()
            path = Path(folder, "page.html")
            path.write_text(text, encoding="utf-8")
            paint, loaded = measure(browser, path)
            size, packed = len(text.encode()) / 1e3, len(gzip.compress(text.encode())) / 1e3
            lines = text.count("<li><a ")
            numbers = ((middle - begin) * 1e3, (end - middle) * 1e3, size, packed, paint, loaded)
            print(f"{name:15} {lines:6}", *(f"{number:9.0f}" for number in numbers))
        browser.close()


if __name__ == "__main__":
    main()
