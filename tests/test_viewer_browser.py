"""The viewer in a real browser: every page, filters, folding, comparing, keys, a run in progress, and texts that attack.

Every page is watched: an error in the console, a dialog, or a request to another machine fails the test.
"""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from tools.get_browser import NONE, find_browser

from assay import simple_evaluate
from assay.runs.live import LIVE, PROGRESS
from assay.runs.run import Run
from chat_world import write_chat_runs
from kinds import mostly_nightly
from test_viewer_labels import RUBRIC, SAID, Labelling, labelling, write_judged
from viewer_world import HOSTILE, SUMS, model, serving, write_runs, write_tasks

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = find_browser()
pytestmark = [pytest.mark.skipif(BROWSER is None, reason=NONE), pytest.mark.xdist_group("viewer")]
AGENT = "eval.question_answering.simpleqa"
WRONG = len(range(0, SUMS, 5))
SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from assay import simple_evaluate
from assay.models import Scripted

go = Path({go!r})
until = time.monotonic() + 120

def generate(prompt, params, repeat):
    time.sleep(0.12)
    while "\\n\\n40 + 1" in prompt and not go.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return " 1"

def likelihood(context, continuation):
    return (-1.0, False)

model = Scripted(generate=generate, loglikelihood=likelihood, identity="slow")
simple_evaluate(model, tasks=["colours", "sums"], include_path={tasks!r}, include_defaults=False, output_path={out!r})
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(runs) as at:
        yield at


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as started:
        built = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield built
        built.close()


Open = Callable[..., playwright.Page]


@pytest.fixture
def open_page(browser: playwright.Browser, address: str) -> Iterator[Open]:
    """Opens pages of the server, and sees to it at the end that nothing was amiss in any of them."""
    amiss: list[str] = []
    contexts: list[playwright.BrowserContext] = []

    def asked(request: playwright.Request) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1":
            amiss.append(f"asked for {request.url}")

    def opened(path: str = "/", at: str = address, missing: bool = False, **options: object) -> playwright.Page:
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", asked)
        page.on("pageerror", lambda error: amiss.append(f"error: {error}"))
        page.on(
            "console", lambda said: amiss.append(f"console: {said.text}") if said.type in ("error", "warning") else None
        )
        page.on("dialog", lambda dialog: (amiss.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        answer = page.goto(at + path)
        assert answer is not None
        assert answer.ok
        return page

    yield opened
    for context in contexts:
        context.close()
    assert amiss == []


def until(page: playwright.Page, condition: str, seconds: float = 120.0) -> None:
    """Wait until something holds in a page. Playwright's own way needs `eval`, which our pages forbid."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"timed out waiting for: {condition}"
        time.sleep(0.05)


def has_rows(page: playwright.Page, table: str, count: int) -> None:
    playwright.expect(page.locator(f"#{table} tbody tr")).to_have_count(count)


def named(page: str, **query: str) -> str:
    return f"/{page}?{urlencode(query)}"


PAGES = {
    "runs": "/",
    "run": named("run", run="first"),
    "columns": named("run", run="first", view="columns"),
    "task": named("task", run="first", task="sums", slice="level"),
    "choices": named("task", run="first", task="colours"),
    "sample": named("sample", run="first", task="sums", doc="5"),
    "choice": named("sample", run="first", task="colours", doc="0"),
    "record": named("sample", run="more/graphs", task="first_steps_graph_tries", doc="0"),
    "graph": named("graph", run="more/graphs", task="first_steps_graph_tries"),
    "compare": "/compare?run=first&run=second",
    "flips": "/flips?run=first&run=second&task=sums",
    "flip": "/flips?run=first&run=second&task=sums&doc=1",
    "judged": named("task", run="judged", task="polite"),
    "verdict": named("sample", run="judged", task="polite", doc="1"),
    "matrix": "/matrix?by=tasks",
    "matrix of runs": "/matrix?by=runs",
    "trend": "/trend?task=sums",
    "scatter": "/scatter",
    "rendered": named("sample", run="first", task="sums", doc="5", markup="1"),
    "chats": named("task", run="chats/one", task="sums"),
    "chat": named("sample", run="chats/one", task="sums", doc="3"),
    "rendered chat": named("sample", run="chats/one", task="sums", doc="3", markup="1"),
    "agent": named("sample", run="chats/agent", task=AGENT, doc="1"),
    "agent's graph": named("graph", run="chats/agent", task=AGENT),
    "other chat": "/flips?run=chats/one&run=chats/two&task=sums&doc=3",
    "label of a chat": named("label", run="chats/one", task="sums", metric="exact_match"),
    "label": named("label", run="judged", task="polite"),
    "problem": named("run", run="none"),
}
"""One page of every kind, which axe-core looks at: a new kind of page is one line here."""


@pytest.fixture(scope="module")
def admitted(runs: Path) -> Iterator[Labelling]:
    write_judged(runs.parent)
    write_chat_runs(runs.parent / "chats").rename(runs / "chats")
    with labelling(runs) as at:
        yield at


WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The rules that depend on colors: the others find in dark what they find in light."""


VIEWS = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))


@pytest.mark.parametrize("number", mostly_nightly([len(VIEWS), 1], kept=[1]))
def test_no_page_has_a_serious_violation_of_wcag_aa_wide_and_narrow_light_and_dark(
    browser: playwright.Browser, admitted: Labelling, number: int
) -> None:
    """Of all views, or of one of them in turn."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    name, _, value = admitted.cookie.partition("=")
    context = browser.new_context(bypass_csp=True)
    context.add_cookies([{"name": name, "value": value, "url": admitted.address}])
    page, serious = context.new_page(), {}
    turns = itertools.cycle(VIEWS)
    for kind, path in PAGES.items():
        page.goto(admitted.address + path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for width, scheme in itertools.islice(turns, number):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            violations = axe.run(page, options=WCAG if scheme == "light" else CONTRAST).response["violations"]
            bad = [each for each in violations if each["impact"] in ("serious", "critical")]
            serious |= {f"{kind}, {width}, {scheme}: {each['id']}": each["nodes"][0]["html"][:200] for each in bad}
    assert serious == {}
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"/x\"><p id=pale>pale</p>')")
    page.evaluate("document.querySelector('#pale').style.color = 'var(--line)'")
    broken = [
        [each["id"] for each in axe.run(page, options=rules).response["violations"]] for rules in (WCAG, CONTRAST)
    ]
    assert "image-alt" in broken[0] and broken[1] == ["color-contrast"]  # they can fail
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_every_target_is_24_pixels_high_and_no_page_is_wider_than_the_window(
    browser: playwright.Browser, admitted: Labelling, width: int
) -> None:
    name, _, value = admitted.cookie.partition("=")
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.add_cookies([{"name": name, "value": value, "url": admitted.address}])
    page = context.new_page()
    for path in PAGES.values():
        page.goto(admitted.address + path)
        small = page.evaluate(
            "[...document.querySelectorAll('a, button, summary, select, input:not([type=hidden])')]"
            ".filter((each) => each.checkVisibility() && !each.matches('.skip') && each.getBoundingClientRect().height < 23.5)"
            ".map((each) => each.outerHTML.slice(0, 120))"
        )
        assert small == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    context.close()


def test_documents_are_labelled_by_one_key_each_however_fast(
    browser: playwright.Browser, admitted: Labelling, runs: Path
) -> None:
    name, _, value = admitted.cookie.partition("=")
    context = browser.new_context()
    context.add_cookies([{"name": name, "value": value, "url": admitted.address}])
    page = context.new_page()
    page.goto(admitted.address + PAGES["label"])
    page.evaluate("window.stillHere = true")
    for key in ("5", "1", "s", "3"):  # without waiting for the next document
        page.keyboard.press(key)
    playwright.expect(page.locator("h1")).to_contain_text("3 labelled, 9 to go")
    page.keyboard.press("z")
    playwright.expect(page.locator("h1")).to_contain_text("2 labelled, 10 to go")
    assert page.evaluate("window.stillHere")  # the page was not loaded again
    page.reload()
    playwright.expect(page.locator("h1")).to_contain_text("2 labelled, 10 to go")
    page.get_by_role("button", name="4").click()
    playwright.expect(page.locator("h1")).to_contain_text("3 labelled, 9 to go")
    context.close()
    assert sorted(Run.open(runs / "judged").labels["polite"].labels.values()) == [1.0, 4.0, 5.0]


COMPARED = ["tick first", "tick second", "Compare selected runs"]
QUESTIONS: dict[str, tuple[list[str], dict[str, str]]] = {
    "which task got worse between two runs?": (COMPARED, {".outcome": "Clearly worse: sums exact_match"}),
    "show me a wrong chat": (
        ["chats/one", "wrong samples", "row"],
        {".verdict.bad": "Wrong: the answer is '9', expected '8'.", ".turn.user >> nth=-1": "What is 4 + 4?"},
    ),
    "what did the judge see, and why this score?": (
        ["judged", "lowest samples", "row"],
        {"#verdicts dl": SAID, "#verdicts details[open] pre": RUBRIC},
    ),
    "which samples flipped, with both answers?": (
        COMPARED,
        {".flip[open] section:nth-child(1) pre": "2", ".flip[open] section:nth-child(2) pre": "4"},
    ),
    "why did a task not run?": (
        ["partial"],
        {"#results .bad": "not run", "#results tr:has-text('not run')": "gone.jsonl"},
    ),
    "is the difference real?": (COMPARED, {"#differences1 tr:has-text('sums') >> td:has-text('…')": "-0."}),
    "which run is best at a task, with ties?": (
        ["matrix"],
        {"#matrix tr:has-text('first') td.best": "0.800", "#matrix tr:has-text('step-300') td.best": "0.800"},
    ),
    "how did a metric go over checkpoints?": (
        ["over time", "number: sums: exact_match (strict)", "over: training step"],
        {"svg.plot": "sums over training steps", "#points tbody tr:has-text('step-200')": "0.600"},
    ),
    "what did the agent do, and what did it cost?": (
        ["chats/agent", AGENT, "row"],
        {
            "code.call >> nth=0": 'lookup_order(order_id="A1") → shipped',
            "h2:has-text('Path')": "cost 120",
            "svg.plot": "support",
        },
    ),
    "where do errors cluster?": (["first", "sums", "by: level"], {".card.wide svg.plot": "n 20"}),
    "is the model calibrated?": (
        ["first", "colours"],
        {".card:has-text('Reliability') .about": "expected calibration error"},
    ),
    "which run is damaged?": ([], {"#runs td.right.bad:not(.num)": "cannot be read"}),
}
"""What a newcomer asks: the clicks from the start page, of which choosing from a list is one, and what is then there to see."""


@pytest.fixture(scope="module")
def asked_about(admitted: Labelling, runs: Path) -> Labelling:
    """The runs that the questions are about: besides those of every page, checkpoints, a task without data, a damaged run."""
    tasks = runs.parent / "tasks"
    (tasks / "gone.yaml").write_text("task: gone\ndataset_path: json\ndataset_kwargs: {data_files: {test: gone.jsonl}}\n"
                                     "test_split: test\ndoc_to_text: a\ndoc_to_target: b\n")  # fmt: skip
    options = {"include_path": str(tasks), "include_defaults": False}
    simple_evaluate(model(lambda a: a % 5 == 0), tasks=["sums", "gone"], output_path=str(runs / "partial"), **options)
    for step, wrong in ((100, (0, 1, 2)), (200, (0, 1)), (300, (0,))):
        written = str(runs / f"trained/step-{step}")
        simple_evaluate(model(lambda a, wrong=wrong: a % 5 in wrong), tasks=["sums"], output_path=written, **options)
    shutil.copytree(runs / "first", runs / "damaged")
    (runs / "damaged/results.json").write_text('{"x')
    return admitted


def follow(page: playwright.Page, click: str) -> None:
    """One click of a question, or one choice from a list."""
    named, _, option = click.partition(": ")
    if click == "row":
        page.locator("#samples tbody a").first.click()
    elif click.startswith("tick "):
        page.get_by_label(f"compare {click.removeprefix('tick ')}", exact=True).check()
    elif option:
        with page.expect_navigation():
            page.locator("label").filter(has_text=re.compile(rf"^\s*{named} ")).locator("select").select_option(
                label=option
            )
    else:
        whole = re.compile(
            "^" + re.sub(r"(?<=[/_+])", r"\\s*", click).replace("/", r"\/") + "$"
        )  # where a long name may break
        page.get_by_role("link", name=whole).or_(page.get_by_role("button", name=whole)).first.click(timeout=5000)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomers_question_is_answered_in_three_clicks(
    question: str, browser: playwright.Browser, asked_about: Labelling
) -> None:
    clicks, seen = QUESTIONS[question]
    assert len(clicks) <= 3
    page = browser.new_page()
    page.goto(asked_about.address + "/")
    for click in clicks:
        follow(page, click)
    for place, text in seen.items():
        element = page.locator(place).first
        playwright.expect(element).to_be_visible()
        playwright.expect(element).to_contain_text(text)
    page.close()


def test_every_page_opens_and_has_one_heading_and_a_title(open_page: Open) -> None:
    page = open_page("/")
    for path in (
        "/",
        named("run", run="first"),
        named("run", run="first", view="columns"),
        named("task", run="first", task="sums", slice="level"),
        named("task", run="first", task="colours"),
        named("sample", run="first", task="sums", doc="5"),
        named("sample", run="first", task="colours", doc="0"),
        named("sample", run="more/graphs", task="first_steps_graph_tries", doc="0"),
        named("graph", run="more/graphs", task="first_steps_graph_tries"),
        "/compare",
        "/compare?run=first&run=second",
        "/flips?run=first&run=second&task=sums",
        "/flips?run=first&run=second&task=sums&doc=1",
    ):
        page.goto(page.url.partition("/")[0] + "//" + urlsplit(page.url).netloc + path)
        assert page.locator("h1").count() == 1, path
        assert page.title().endswith("assay")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than the window"


def test_from_the_runs_to_a_wrong_sample_by_clicking(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_role("link", name="first", exact=True).click()
    page.get_by_role("link", name="wrong samples").nth(1).click()
    has_rows(page, "samples", WRONG)
    page.locator("#samples tbody tr").nth(1).get_by_role("link").click()
    playwright.expect(page.locator(".verdict")).to_have_text("Wrong: the answer is '8', expected '6'.")
    page.get_by_text("2 parts before the question").click()
    playwright.expect(page.locator("details.shots pre").first).to_be_visible()
    assert page.locator("details.shots pre").all_inner_texts() == ["100 + 1 = 101\n\n", "200 + 1 = 201\n\n"]


def test_from_the_demo_to_a_wrong_sample_and_why_in_five_steps(open_page: Open, tmp_path: Path) -> None:
    """The way that docs/viewing.md describes, on the run that `make demo` makes."""
    words = " ".join((Path(__file__).parent.parent / "docs/viewing.md").read_text().split())
    lowest, why = ["sequences", "reversing", "opposites"], "Wrong: 'small' is the likeliest choice, expected 'false'."
    assert f"the three tasks with the lowest numbers: {', '.join(lowest)}." in words and f"`{why}`" in words
    simple_evaluate("embedded", tasks=["first_steps"], output_path=str(tmp_path / ".demo-run"))
    with serving(tmp_path / ".demo-run") as at:
        page = open_page("/", at=at)
        page.get_by_role("link", name=".demo-run", exact=True).click()
        card = page.locator(".card", has=page.get_by_role("heading", name="Lowest"))
        playwright.expect(card.locator("tr td:first-child")).to_have_text(lowest)
        card.locator("tr", has_text="opposites").get_by_role("link", name="wrong samples").click()
        page.locator("#samples tbody tr").first.get_by_role("link").click()
        playwright.expect(page.locator(".verdict")).to_have_text(why)
        playwright.expect(page.locator("pre.prompt")).to_contain_text("The opposite of true is")
        playwright.expect(page.locator("#choices tbody tr", has_text="false").first).to_contain_text("right")
        page.keyboard.press("j")
        page.wait_for_url("**at=1*")
        page.close()


def test_samples_are_filtered_in_the_page_and_the_url_has_the_filter(open_page: Open) -> None:
    page = open_page(named("task", run="first", task="sums"))
    page.get_by_label("Search samples").fill("17 + 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=17*")
    has_rows(page, "samples", 1)
    page.get_by_label("Search samples").fill("")
    page.keyboard.press("Enter")
    page.get_by_label("Column").select_option("doc.level")
    page.get_by_label("Value").fill("2")
    page.get_by_role("button", name="Add filter").click()
    page.wait_for_url("**f=doc.level*")
    playwright.expect(page.locator("h2", has_text="Samples")).to_have_text("Samples 20")
    page.get_by_role("link", name="wrong", exact=True).click()
    query = parse_qs(urlsplit(page.url).query)
    assert (query["f"], query["show"]) == (["doc.level~eq~2"], ["wrong"])
    has_rows(page, "samples", 4)  # 5, 20, 35, 50
    page.locator(".chip", has_text="doc.level").click()
    has_rows(page, "samples", WRONG)


def test_a_deep_link_shows_the_same_to_another_user(open_page: Open) -> None:
    path = named("task", run="first", task="sums", show="wrong", sort="doc_id", desc="1", q="5")
    rows = open_page(path).locator("#samples tbody tr td:first-child").all_inner_texts()
    assert rows == ["55", "50", "45", "35", "25", "15", "5"]
    assert open_page(path).locator("#samples tbody tr td:first-child").all_inner_texts() == rows


def test_groups_are_closed_and_opened_in_place(open_page: Open) -> None:
    page = open_page(named("run", run="first"))
    every = page.locator("#results tbody tr").count()
    page.evaluate("window.stillHere = true")
    page.get_by_role("link", name="close quiz", exact=True).click()
    page.wait_for_url("**closed=quiz*")
    has_rows(page, "results", 1)
    page.get_by_role("link", name="open quiz", exact=True).click()
    until(page, "document.querySelectorAll('#results tbody tr').length > 1")
    has_rows(page, "results", every)
    page.go_back()
    until(page, "document.querySelectorAll('#results tbody tr').length === 1")
    assert page.evaluate("window.stillHere")  # no page was loaded anew


def test_runs_that_are_chosen_are_compared_with_their_flips_side_by_side(open_page: Open) -> None:
    page = open_page("/?sort=name")
    page.get_by_label("compare first").check()
    page.get_by_label("compare second").check()
    page.get_by_role("button", name="Compare selected runs").click()
    playwright.expect(page.locator("h1")).to_contain_text("second against first")
    row = page.locator("#differences1 tbody tr", has_text="sums").first
    playwright.expect(row).to_contain_text("-0.2000")
    flip = page.locator("details.flip").first
    assert (flip.locator("del").inner_text(), flip.locator("ins").inner_text()) == ("2", "4")  # 1 + 1
    page.get_by_role("link", name="swap").click()
    playwright.expect(page.locator("#differences1 tbody tr", has_text="sums").first).to_contain_text("+0.2000")


def test_keys_lead_through_rows_pages_and_samples(open_page: Open) -> None:
    page = open_page("/?sort=name&q=scripted+quiz")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")  # the browser closes it later
    for key in ("j", "j", "k", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/run?run=first")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**view=worst*")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/task?**sums*")
    page.keyboard.press("/")
    page.keyboard.type("17 + 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=17*")
    page.keyboard.press("Escape")
    page.goto(page.url.replace("q=17+%2B+1", "show=wrong"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**doc=0*")
    page.keyboard.press("j")
    page.wait_for_url("**doc=5*")
    page.keyboard.press("k")
    page.wait_for_url("**doc=0*")
    page.keyboard.press("u")
    page.wait_for_url("**/task?**show=wrong*")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(f"{urlsplit(page.url).scheme}://{urlsplit(page.url).netloc}/")


def test_enter_opens_the_row_while_the_button_of_a_closed_dialog_still_has_the_focus(open_page: Open) -> None:
    page = open_page("/?sort=name&q=scripted+quiz")
    page.keyboard.press("j")
    page.evaluate("""() => {
        const help = document.querySelector("#help");
        help.showModal();
        help.close();
        const pressed = new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true });
        help.querySelector("button").dispatchEvent(pressed);
    }""")
    page.wait_for_url("**/run?run=first")


def test_tables_are_copied_as_markdown_and_as_csv(open_page: Open) -> None:
    page = open_page(named("run", run="first"))
    page.get_by_role("button", name="markdown").click()
    until(page, "document.querySelector('#status').textContent === 'copied'")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].startswith("| Task | Metric | Value | 95 % | n |")
    both = [line for line in lines if line.startswith("| \u00a0\u00a0sums | exact_match ↑")]
    assert [line.split(" | ")[1:3] for line in both] == [
        ["exact_match ↑ flexible", "0.8000"],
        ["exact_match ↑ strict", "0.8000"],
    ]
    assert len({line.count("|") for line in lines}) == 1
    page.get_by_role("button", name="CSV").click()
    until(page, "navigator.clipboard.readText().then((text) => text.startsWith('Task,'))")
    rows = list(csv.DictReader(page.evaluate("navigator.clipboard.readText()").splitlines()))
    assert {(row["Task"], row["depth"]) for row in rows} == {
        ("quiz", "0"),
        ("seeing", "1"),
        ("colours", "2"),
        ("sums", "1"),
    }
    assert all(float(row["low"]) < float(row["Value"]) < float(row["high"]) for row in rows if row["Metric"])
    assert "" not in rows[0]


def test_cells_that_a_spreadsheet_would_run_are_copied_as_text(open_page: Open) -> None:
    page = open_page("/")
    odd = page.evaluate(
        "MAKERS.csv([['-2+3+cmd|x', '+1', '+0.25', '-1e-5', '-1,234.5', '+1 … +2', '--1', '+', '-.5', '-5 x']])"
    )
    assert odd == "'-2+3+cmd|x,+1,+0.25,-1e-5,\"-1,234.5\",'+1 … +2,'--1,'+,-.5,'-5 x\n"
    csv_text = page.evaluate("MAKERS.csv([['=1+1', '-0.5', '-cmd', '@x', 'a,\"b\"']])")
    assert csv_text == '\'=1+1,-0.5,\'-cmd,\'@x,"a,""b"""\n'


def test_dark_and_light_by_the_system_by_the_button_and_kept(open_page: Open) -> None:
    def ground(page: playwright.Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page = open_page("/", color_scheme="dark")
    dark = ground(page)
    page.keyboard.press("d")
    light = ground(page)
    assert light != dark
    page.reload()
    assert ground(page) == light
    page.get_by_role("button", name="Dark").click()
    assert ground(page) == dark


def test_a_narrow_screen_scrolls_tables_and_not_the_page(open_page: Open) -> None:
    for path in ("/", named("run", run="first"), named("task", run="first", task="sums"), named("sample", run="first", task="colours", doc="1"),
                 "/compare?run=first&run=second"):  # fmt: skip
        page = open_page(path, viewport={"width": 360, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_the_headline_of_a_run_is_visible_without_scrolling(open_page: Open) -> None:
    page = open_page(named("run", run="first"), viewport={"width": 400, "height": 700})
    row = page.locator("#results tbody tr", has_text="sums").first
    for column in range(4):  # task, metric, value, interval
        box = row.locator("td").nth(column).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 400
    wide = open_page("/compare?run=first&run=second", viewport={"width": 1280, "height": 700})
    assert wide.evaluate(
        "document.querySelector('#differences1').offsetWidth <= document.querySelector('main').clientWidth"
    )
    assert wide.locator(".scroll.cut").count() == 0
    narrow = open_page("/compare?run=first&run=second", viewport={"width": 400, "height": 700})
    cut = narrow.locator(".scroll.cut", has=narrow.locator("#differences1"))
    playwright.expect(cut).to_have_count(1)
    cut.evaluate("(each) => { each.scrollLeft = 10000; }")
    playwright.expect(narrow.locator(".scroll.cut", has=narrow.locator("#differences1"))).to_have_count(0)
    first = narrow.locator("#differences1 tbody td").first.bounding_box()
    assert first is not None
    assert first["x"] >= 0  # the name stays where it can be seen


def test_the_older_of_two_chosen_runs_is_the_baseline_also_the_other_way_round_with_other_prompts(
    open_page: Open,
) -> None:
    page = open_page("/")  # the latest first
    assert page.locator("#runs tbody input").evaluate_all(
        "(all) => all.map((each) => each.value).indexOf('second') < all.map((each) => each.value).indexOf('first')"
    )
    page.get_by_label("compare second").check()
    page.get_by_label("compare first").check()
    page.get_by_role("button", name="Compare selected runs").click()
    playwright.expect(page.locator("h1")).to_contain_text("second against first")
    page.get_by_label("compare even where prompts differ").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_role("link", name="swap").click()
    playwright.expect(page.locator("h1")).to_contain_text("first against second")
    playwright.expect(page.get_by_label("compare even where prompts differ")).to_be_checked()


def test_a_run_compared_with_itself_is_reported_as_such(open_page: Open) -> None:
    page = open_page("/compare?run=first&run=first")
    playwright.expect(page.locator("main")).to_contain_text("A run cannot be compared with itself")


def test_pages_work_without_javascript(open_page: Open) -> None:
    page = open_page(named("run", run="first"), java_script_enabled=False)
    page.get_by_role("link", name="close quiz", exact=True).click()
    has_rows(page, "results", 1)
    page.goto(page.url.partition("/run")[0] + named("task", run="first", task="sums"))
    page.get_by_label("Column").select_option("doc.level")
    page.get_by_label("Value").fill("2")
    page.get_by_role("button", name="Add filter").click()
    playwright.expect(page.locator("h2", has_text="Samples")).to_have_text("Samples 20")


def test_a_run_in_progress_is_followed(open_page: Open, tmp_path: Path) -> None:
    tasks, out = write_tasks(tmp_path / "tasks"), tmp_path / "runs/slow"
    (tmp_path / "runs").mkdir()
    go = tmp_path / "go"  # the run waits for this file, however long the browser takes
    script = SLOW.format(tests=str(Path(__file__).parent), tasks=str(tasks), out=str(out), go=str(go))
    with serving(tmp_path / "runs") as at:
        working = subprocess.Popen(
            [sys.executable, "-c", script], env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            progress = out / LIVE / PROGRESS
            while not progress.exists() or "sums" not in progress.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            page = open_page(named("run", run="slow"), at=at)
            page.evaluate("window.stillHere = true")
            assert "running" in page.locator("h1").inner_text()
            playwright.expect(page.get_by_label("Progress")).to_contain_text("left")  # and when it will end
            assert "0 samples" not in page.locator("h1").inner_text()  # how many there are, the progress says
            until(page, "document.querySelectorAll('progress')[0].value > 20", 30)  # all colours, some sums
            task = open_page(named("task", run="slow", task="colours"), at=at)
            has_rows(task, "samples", 20)  # a task that has ended can be looked at
            go.touch()
            until(page, "document.querySelector('h1').textContent.includes('complete')", 60)
            playwright.expect(page.locator("#results")).to_contain_text("exact_match")
            assert page.evaluate("window.stillHere")
            for each in (page, task):
                each.close()  # before the server stops, which they would ask once more
        finally:
            go.touch()
            working.wait(timeout=60)
    assert json.loads((out / "manifest.json").read_text())["status"] == "complete"


def test_texts_that_attack_do_nothing(open_page: Open) -> None:
    name = "<img src=x onerror=alert(0)>"
    page = open_page("/")
    base = page.url.rstrip("/")
    paths = [
        "/",
        named("run", run=name),
        named("run", run=name, view="columns"),
        f"/compare?{urlencode([('run', name), ('run', 'first')])}",
    ]
    for task in HOSTILE[:3]:
        paths += [named("task", run=name, task=task, slice="level", q=task), named("task", run=name, task=task, f=f"doc.{task}~has~{task}"),
                  named("task", run=name, task=task), named("graph", run=name, task=task)]  # fmt: skip
        paths += [
            named("sample", run=name, task=task, doc=str(number), at=str(number)) for number in range(len(HOSTILE))
        ]
    for path in paths:
        page.goto(base + path)
        assert page.locator("h1").count() == 1, path
        assert (
            page.evaluate(
                "document.querySelectorAll('iframe, img, script:not([src=\"/static/view.js\"]), [onerror], [onload]').length"
            )
            == 0
        )
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("[...document.links].every((link) => link.href.startsWith(location.origin))")
    page.goto(base + named("task", run=name, task=HOSTILE[0]))
    assert HOSTILE[0] in page.locator("#samples").inner_text()


def test_an_attack_in_the_page_itself_would_have_been_stopped(
    open_page: Open, browser: playwright.Browser, address: str
) -> None:
    """What the policy forbids does not run even where markup would get through: so the tests above can fail."""
    page = browser.new_page()
    page.goto(address)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 2'}))"
    )
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {src: 'http://evil.example/x.js'}))"
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    page.close()
