"""Take the screenshots of docs/: every page of the viewer over runs that are made for it, in a real browser.

usage: python tools/make_screenshots.py FOLDER
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parent.parent / "tests"))
from get_browser import NONE, get_browser

RUNS = {
    "first": ["--tasks", "first_steps"],
    "two-examples": ["--tasks", "first_steps", "--num_fewshot", "2"],
    "graphs": ["--tasks", "first_steps_graphs"],
    "checkpoints/step-100": ["--tasks", "first_steps_letters", "--num_fewshot", "0"],
    "checkpoints/step-200": ["--tasks", "first_steps_letters", "--num_fewshot", "1"],
    "checkpoints/step-300": ["--tasks", "first_steps_letters", "--num_fewshot", "3"],
}
AGENT = "eval.question_answering.simpleqa"
PAGES = {
    "runs": "/",
    "live": "/run?run=going",
    "run": "/run?run=first",
    "task": "/task?run=first&task=first_steps_facts&slice=answer",
    "sample": "/sample?run=first&task=first_steps_facts&doc=10&at=1",
    "conversation": "/sample?run=chats/one&task=sums&doc=3",
    "compare": "/compare?run=first&run=two-examples&different_prompts=1",
    "flip": "/flips?run=chats/one&run=chats/two&task=sums&doc=3",
    "matrix": "/matrix?by=tasks&run=first&run=two-examples",
    "trend": "/trend?row=first_steps_letters|exact_match,trimmed&over=step",
    "graph": "/graph?run=graphs&task=first_steps_graph_tries",
    "agent": f"/sample?run=chats/agent&task={AGENT}&doc=0",
    "judge": "/sample?run=judged&task=polite&doc=3",
    "label": "/label?run=judged&task=polite",
    "dark": "/run?run=first&view=worst",
}
SIZE = {"width": 1120, "height": 600}
COLORS = 64
"""Of the palette, which keeps rare colors, too: the files are a third as large."""
LARGEST = 50_000


def main(folder: Path) -> None:
    browser = get_browser()
    if browser is None:
        print(NONE.replace("the browser tests are skipped", "the screenshots stay as they are"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(temporary) / "runs"
        write_runs(runs)
        with started("view", "runs", "--port", "0", "--label", "--labeller", "Ann", folder=runs.parent) as served:
            assert served.stdout is not None
            address = served.stdout.readline().strip()
            with started("run", *RUNS["first"], "--output_path", "runs/going", folder=runs.parent):
                take(address, folder, browser)


def write_runs(runs: Path) -> None:
    """Write the runs: of the model that comes with assay, and of the tests' chat server, agent and judge."""
    from chat_world import write_chat_runs
    from test_viewer_labels import write_judged

    for name, options in RUNS.items():
        with started("run", *options, "--output_path", f"runs/{name}", folder=runs.parent) as running:
            running.wait()
    write_judged(runs.parent)
    write_chat_runs(runs.parent / "chats").rename(runs / "chats")


@contextmanager
def started(*command: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A command of assay, which is stopped at the end."""
    running = subprocess.Popen(
        [sys.executable, "-m", "assay", *command],
        cwd=folder,
        stdout=subprocess.PIPE if command[0] == "view" else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


def take(address: str, folder: Path, browser: str) -> None:
    """Take the picture of each page; that of the run in progress first, when it has some numbers."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    base = address.partition("?")[0].rstrip("/")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        context = opened.new_context(viewport=SIZE)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(address)  # its token lets this browser label
        for name in sorted(PAGES, key=lambda each: each != "live"):
            if name == "live":
                wait_for_numbers(page, base + PAGES[name])
            page.emulate_media(color_scheme="dark" if name == "dark" else "light")
            page.goto(base + PAGES[name])
            file = folder / f"{name}.png"
            page.screenshot(path=file)
            with Image.open(file) as picture:
                small = picture.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                small.save(file, optimize=True)
            assert file.stat().st_size < LARGEST, f"{file.name} is too large for a document"
        opened.close()


def wait_for_numbers(page: "object", address: str) -> None:
    """Wait until the run in progress has provisional numbers of several tasks."""
    for _ in range(120):
        answer = page.goto(address)  # type: ignore[attr-defined]
        if answer is not None and answer.ok and answer.text().count('<tr class="provisional') > 12:
            return
        time.sleep(0.5)
    raise TimeoutError("the run in progress has no numbers")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
