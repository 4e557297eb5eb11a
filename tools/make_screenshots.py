"""Take the screenshots of docs/: every page of the viewer over runs that are made for it, in a real browser.

usage: python tools/make_screenshots.py FOLDER
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from get_browser import NONE, get_browser

RUNS = {
    "first": ["--tasks", "first_steps"],
    "two-examples": ["--tasks", "first_steps", "--num_fewshot", "2"],
    "graphs": ["--tasks", "first_steps_graphs"],
}
PAGES = {
    "runs": "/",
    "run": "/run?run=first",
    "task": "/task?run=first&task=first_steps_facts&slice=answer",
    "sample": "/sample?run=first&task=first_steps_facts&doc=10&at=1",
    "compare": "/compare?run=first&run=two-examples&different_prompts=1",
    "graph": "/graph?run=graphs&task=first_steps_graph_tries",
    "dark": "/run?run=first&view=worst",
}
SIZE = {"width": 1120, "height": 600}
LARGEST = 150_000


def main(folder: Path) -> None:
    browser = get_browser()
    if browser is None:
        print(NONE.replace("the browser tests are skipped", "the screenshots stay as they are"))
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        assay = [sys.executable, "-m", "assay"]
        for name, options in RUNS.items():
            command = [*assay, "run", *options, "--output_path", f"runs/{name}"]
            subprocess.run(command, cwd=temporary, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        served = subprocess.Popen(
            [*assay, "view", "runs", "--port", "0"],
            cwd=temporary,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert served.stdout is not None
            take(served.stdout.readline().strip().rstrip("/"), folder, browser)
        finally:
            served.terminate()
            served.wait()


def take(address: str, folder: Path, browser: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, path in PAGES.items():
            page = opened.new_page(viewport=SIZE, color_scheme="dark" if name == "dark" else "light")  # type: ignore[arg-type]
            page.goto(address + path)
            page.screenshot(path=folder / f"{name}.png")
            assert (folder / f"{name}.png").stat().st_size < LARGEST, f"{name}.png is too large for a document"
            page.close()
        opened.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
