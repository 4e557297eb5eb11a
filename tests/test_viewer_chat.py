"""Conversations are turns wherever they are shown: pages, terminal, report, comparison, exports; and never markup."""

import json
import re
import time
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.get_browser import NONE, find_browser

import hostile_answers
from assay.cli import main
from assay.records import FilterScores, Generate, Message, Sample, TextPart
from assay.runs.samples.reader import SampleFile
from assay.runs.samples.records import SampleRecord
from assay.runs.samples.turns import chat_prompt, question_of
from assay.runs.samples.writer import SampleWriter
from assay.viewer.markup import ATTRIBUTES, MAX_RENDERED, TAGS, formula, rendered
from assay.viewer.sample_page import sample_view
from chat_world import write_chat_runs, write_judged_graph
from test_viewer import text_of
from viewer_world import HOSTILE, fetched, read_pages, serving

pytestmark = pytest.mark.xdist_group("viewer")
AGENT = "eval.question_answering.simpleqa"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_runs(tmp_path_factory.mktemp("chats"))


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with serving(runs) as at:
        yield at


def test_a_sample_has_turns_with_system_prompt_and_examples_folded(address: str) -> None:
    _, page, _ = fetched(address, "/sample", run="one", task="sums", doc="3")
    text = text_of(page)
    assert "system Be brief. Be brief. 4 turns of examples user What is 100 + 1? assistant 101" in text
    assert "user What is 4 + 4? Answer reasoning 29 characters Let me count from 4, 4 times. The sum:" in text
    assert page.count('<details class="turn system">') == 1 and page.count('<details class="shots">') == 1
    assert "&#34;role&#34;" not in page.partition("Raw request")[0]


def test_markdown_and_formulas_are_rendered_where_asked(address: str) -> None:
    _, page, _ = fetched(address, "/sample", run="one", task="sums", doc="3", markup="1")
    assert "<li>first <strong>4</strong>, then <strong>4</strong></li>" in page
    assert 'class="formula inline">\\frac{9}{1} = 9<' in page or "<mfrac>" in page
    _, plain, _ = fetched(address, "/sample", run="one", task="sums", doc="3")
    assert (
        "- first **4**, then **4**" in plain and 'href="/sample?run=one&amp;task=sums&amp;doc=3&amp;markup=1"' in plain
    )


def test_lists_show_the_question_and_not_the_conversation(address: str) -> None:
    text = text_of(fetched(address, "/task", run="one", task="sums")[1])
    assert "3 What is 4 + 4? The sum:" in text
    assert '"role"' not in text.partition("Settings of the task")[0]


def test_the_terminal_prints_turns_under_their_roles(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["samples", str(runs / "one"), "--doc", "3"]) == 0
    shown = capsys.readouterr().out
    assert (
        "── system\nBe brief.\n── examples\n[4 turns; --full shows them]\n── user\nWhat is 4 + 4?\n── reasoning\n"
        in shown
    )
    assert main(["samples", str(runs / "one"), "--doc", "3", "--full"]) == 0
    assert "── example, user\nWhat is 100 + 1?\n── example, assistant\n101\n" in capsys.readouterr().out


def test_a_report_and_a_comparison_have_turns(runs: Path, address: str, tmp_path: Path) -> None:
    assert main(["report", str(runs / "one"), "-o", str(tmp_path / "report.md"), "--format", "md"]) == 0
    report = (tmp_path / "report.md").read_text()
    assert "user: What is 4 + 4?" in report and '"role"' not in report
    flips = text_of(fetched(address, "/compare?run=one&run=two")[1])
    assert "1 → 0 What is 3 + 3?" in flips and '"role"' not in flips
    assert "the answers begin to differ at character 1: '6' → '7'" in flips


def test_the_prompt_of_a_flip_has_its_examples_folded(address: str) -> None:
    _, page, _ = fetched(address, "/flips?run=one&run=two&task=sums&doc=3")
    assert page.count('<details class="turn system">') == 1 and page.count('<details class="shots">') == 1
    assert "<pre>What is 4 + 4?</pre>" in page.partition("</details>")[2]


def test_an_inspect_log_has_messages_reasoning_and_usage(runs: Path, tmp_path: Path) -> None:
    assert main(["export", str(runs / "one"), "--to", "inspect", "-o", str(tmp_path)]) == 0
    [log] = tmp_path.rglob("*.eval")
    with zipfile.ZipFile(log) as packed:
        sample = json.loads(packed.read("samples/3_epoch_1.json"))
    roles = ["system", *["user", "assistant"] * 3]
    assert [message["role"] for message in sample["messages"]] == roles
    assert [message["role"] for message in sample["input"]] == roles[:-1]
    assert [part["type"] for part in sample["messages"][-1]["content"]] == ["reasoning", "text"]
    [usage] = sample["model_usage"].values()
    assert (usage["input_tokens"], usage["output_tokens"]) == (40, 10) and sample["total_time"] > 0


def test_an_agent_has_calls_with_results_a_timeline_and_where_it_failed(address: str) -> None:
    text = text_of(fetched(address, "/sample", run="agent", task=AGENT, doc="2")[1])
    assert 'assistant lookup_order(order_id="C3") → shipped assistant Your order: **shipped**.' in text
    assert "checked failed: the node 'checked': KeyError: 'unknown order C3' (code.py:19)" in text
    assert re.search(r"support, turn 1 model \d\.\d{3} 40 tokens in, 10 out lookup_order tool \d\.\d{3}", text)
    assert "Last state" in text and "80 tokens in, 20 out" in text
    graph = text_of(fetched(address, "/graph", run="agent", task=AGENT)[1])
    assert "300 tokens · cost 360" in graph  # 240 read at 1, 60 written at 2
    assert "support agent 3 3 6" in graph and "240 60 360.0000 0" in graph


def test_each_node_of_a_graph_costs_what_its_model_costs_and_its_judge_is_a_judge(tmp_path: Path) -> None:
    write_judged_graph(tmp_path)
    with serving(tmp_path / "runs") as at:
        graph = text_of(fetched(at, "/graph", run="judged graph", task=AGENT)[1])
        _, page, _ = fetched(at, "/sample", run="judged graph", task=AGENT, doc="0")
    assert "50 tokens" not in graph and "100 tokens · cost 120" in graph and "100 tokens · cost 20" in graph
    text = text_of(page)
    assert "Path through the graph cost 70.0000 · drawing" in text  # 40 + 2 × 10 of the reply, 10 of the verdict
    assert "Answer reply hello finish reason: stop" in text and "predicted, expected" not in text
    assert (
        "Verdict of the judge score 4 reason It is a little curt. judge openai-chat m · role judge · node measure"
        in text
    )
    assert "Is it polite?" in text and "polite 0.3333" in text  # (4 - 1) / (10 - 1)


def view_of(folder: Path, prompt: object, said: str = "x", shots: int = 0):  # type: ignore[no-untyped-def]
    writer = SampleWriter(folder, "t")
    asked = [Generate(prompt, {})]  # type: ignore[arg-type]
    scores = [FilterScores("none", [said], {"exact_match": 0.0})]
    writer.add(SampleRecord(Sample(0, {}, asked, "x", "x"), [[said]], scores))
    writer.end()
    writer.place()
    [row] = SampleFile(folder / "t.parquet").rows()
    return row, sample_view(row, {"num_fewshot": shots}, {})


def test_a_text_that_looks_like_a_conversation_stays_text(tmp_path: Path) -> None:
    similar = json.dumps([{"role": "user", "content": "hi"}])
    row, view = view_of(tmp_path / "a", similar)
    assert view.chat is None and view.prompt == similar == question_of(row)
    parts = (Message("user", (TextPart("look: "), TextPart("a cat"))),)
    row, view = view_of(tmp_path / "b", parts)
    assert [turn.text for turn in view.chat.turns] == ["look: \na cat"]


def test_turns_of_a_conversation_without_examples_are_not_folded(tmp_path: Path) -> None:
    talk = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    row, view = view_of(tmp_path / "a", talk)
    assert [turn.text for turn in view.chat.turns] == ["a", "b", "c"] and not view.chat.examples
    folded = chat_prompt(row, 1)
    assert folded is not None and [turn.text for turn in folded.examples] == ["a", "b"]
    _, view = view_of(tmp_path / "b", (Message("user", "1 + 1 = 2\n\n2 + 2 ="),), shots=1)
    assert ([turn.text for turn in view.chat.examples], view.chat.turns[0].text) == (["1 + 1 = 2"], "2 + 2 =")


def test_reasoning_within_an_answer_is_set_apart(tmp_path: Path) -> None:
    _, view = view_of(tmp_path, "q", "<think>so</think>four")
    assert [(reply.text, reply.reasoning) for reply in view.replies] == [("four", "so")]


ATTACKS = [
    *HOSTILE, "[a](javascript:alert(1))", "![a](http://evil.example/x.png)", "[a](http://evil.example/)", "<http://evil.example/>",
    "| a |\n|--:|\n| <img src=x onerror=alert(1)> |", "```html\n<script>alert(1)</script>\n```", "\ud800 half", "[x]: javascript:alert(1)\n[x]",
    r"$\text{<script>alert(1)</script>}$", r"$\href{javascript:alert(1)}{x}$", r"$\style{color:red}{x}$", r"$\class{evil}{x}$",
]  # fmt: skip


@pytest.mark.parametrize("text", ATTACKS)
def test_rendered_texts_are_never_executed(text: str) -> None:
    seen: list[tuple[str, str]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            seen.extend((tag, name) for name, _ in attributes or [("", "")])
            assert not any(name == "class" and "evil" in str(value) for name, value in attributes)

    Reader().feed(str(rendered(text)))
    assert seen
    assert {tag for tag, _ in seen} <= {"p", "pre", "code", "span", "table", "thead", "tbody", "tr", "th", "td"} | TAGS
    assert {name for _, name in seen} <= {"", "class", "title"} | ATTRIBUTES


@pytest.mark.parametrize("text", ["[", "*a ", "> ", "`", "$x", "\\(", "|a", "![[", "_a*b", "- "])
def test_texts_made_to_be_slow_are_rendered_soon(text: str) -> None:
    begun = time.process_time()
    rendered((text * MAX_RENDERED)[:MAX_RENDERED])
    assert time.process_time() - begun < 4
    assert rendered(text * (MAX_RENDERED + 1)).startswith('<pre class="plain">')


def test_formulas_become_mathml_of_known_elements_alone() -> None:
    pytest.importorskip("latex2mathml")
    assert formula(r"\frac{1}{2}").replace("<mrow>", "").replace("</mrow>", "") == (
        '<math display="inline"><mfrac><mn>1</mn><mn>2</mn></mfrac></math>'
    )
    assert formula(r"\text{<b>}") == '<math display="inline"><mrow><mtext>&lt;b&gt;</mtext></mrow></math>'
    for broken in (r"\frac", "{" * 900, "^", r"\begin{matrix}1", r"\big", r"\Bigl", r"\left", r"\sqrt[", r"\text"):
        assert formula(broken).startswith('<span class="formula inline">'), broken


COMMANDS = [
    "frac",
    "sqrt",
    "sum",
    "int",
    "lim",
    "left",
    "right",
    "big",
    "Big",
    "bigl",
    "Biggr",
    "text",
    "mathrm",
    "mathbb",
    "operatorname",
    "overline",
    "underbrace",
    "overset",
    "stackrel",
    "binom",
    "hline",
    "begin{matrix}",
    "end{matrix}",
    "begin{cases}",
    "end{cases}",
    "begin{array}{cc}",
    "color",
    "href",
    "style",
    "hspace",
    "limits",
    "not",
    "middle",
    "substack",
    "tag",
    "xrightarrow",
    "hphantom",
    "mod",
    "pmod",
    "choose",
    "over",
    "atop",
    "displaystyle",
    "prime",
    "cdots",
    "infty",
    "alpha",
]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["\\" + name for name in COMMANDS]), st.sampled_from(list("{}[]()^_&|<>'.,-+=1x \\$#%"))
        ),
        max_size=12,
    )
)
def test_whatever_a_formula_is_it_is_shown(parts: list[str]) -> None:
    for text in ("".join(parts), " ".join(parts)):
        assert formula(text).startswith(("<math", "<span"))
        assert rendered(f"so ${text}$ and\n\n$$ {text} $$")


def test_no_answer_makes_a_page_fail(tmp_path: Path) -> None:
    """Each is a response, an answer of a filter, and what a judge said; as text and with its markup."""
    answers = [*HOSTILE, *hostile_answers.HOSTILE.values(), "$\\big$", "$$" + "{" * 900 + "$$", "\\[\\left\\]", "> " * 9_000, "[" * 20_000,
               "![](" * 3_000, "`" * 20_000, "|a|\n|-|\n" * 2_000, "<think>" * 99, "$" * 5_000]  # fmt: skip
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    values = [*answers, {"a": float("nan")}, 10**400, True, None, deep]
    writer = SampleWriter(tmp_path / "runs/run/samples", "t")
    for number, text in enumerate(answers):
        replies = [{"finish": text, "reasoning": text, "usage": [1, 2, 0.5, 1, 0, 0]}] * 2 + [
            {"verdict": text, "question": text, "role": text}
        ]
        sample = Sample(number, {"q": text, "deep": deep}, [Generate(text, {})], deep if number else text, text)
        scores = [FilterScores("none", values if not number else [text], {"exact_match": 0.0})]
        writer.add(SampleRecord(sample, [[text, text]], scores, repeats=2, replies=replies))
    writer.end()
    writer.place()
    (tmp_path / "runs/run/manifest.json").write_text(
        '{"status": "complete", "tasks": {"t": {"size": 9, "repeats": 2}}}'
    )
    (tmp_path / "runs/run/results.json").write_text(
        '{"tasks": {"t": {"alias": "t", "rows": [{"metric": "exact_match", "filter": "none", "value": 0.0}]}}}'
    )
    pages = ["/task?run=run&task=t", "/task?run=run&task=t&page=2&slice=deep", "/task.json?run=run&task=t"]
    pages += [f"/samples.{kind}?run=run&task=t" for kind in ("csv", "jsonl", "parquet")]
    pages += [
        f"/sample{kind}run=run&task=t&doc={number}"
        for number in range(len(answers))
        for kind in ("?markup=1&", ".json?")
    ]
    pages += ["/sample?run=run&task=t&doc=0", "/sample?run=run&task=t&doc=9"]
    answered = read_pages(tmp_path / "runs", pages)
    assert {page: answer.text[-900:] for page, answer in answered.items() if answer.status_code != 200} == {}


def test_a_conversation_of_a_megabyte_and_of_attacks_is_a_page(tmp_path: Path) -> None:
    talk = tuple(Message("user", text) for text in (*HOSTILE, "word " * 200_000, "\u202eback"))
    view_of(tmp_path / "runs/big/samples", talk, "x" * 1_000_000)
    (tmp_path / "runs/big/manifest.json").write_text(
        '{"format": 3, "created": 1.0, "status": "complete", "tasks": {"t": {"size": 1}}}'
    )
    (tmp_path / "runs/big/results.json").write_text(
        '{"tasks": {"t": {"alias": "t", "rows": [{"metric": "exact_match", "filter": "none", "value": 0.0}]}}}'
    )
    with serving(tmp_path / "runs") as at:
        for markup in ("", "1"):
            status, page, _ = fetched(at, "/sample", run="big", task="t", doc="0", markup=markup)
            assert status == 200 and "<script>alert" not in page and "<img src=x" not in page


@pytest.mark.skipif(find_browser() is None, reason=NONE)
def test_chats_charts_and_graphs_in_a_browser_wide_and_narrow_light_and_dark(address: str, tmp_path: Path) -> None:
    """Nothing is loaded from elsewhere, nothing is wrong in the console, and no page is wider than its window."""
    playwright = pytest.importorskip("playwright.sync_api")
    pages = {
        "sample": "/sample?run=one&task=sums&doc=3&markup=1", "agent": f"/sample?run=agent&task={AGENT}&doc=2",
        "task": "/task?run=one&task=sums&slice=level", "flips": "/flips?run=one&run=two&task=sums", "graph": f"/graph?run=agent&task={AGENT}",
    }  # fmt: skip
    amiss: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for width, scheme in ((1280, "light"), (390, "dark")):
            page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
            page.on("request", lambda asked: amiss.append(asked.url) if not asked.url.startswith(address) else None)
            page.on("console", lambda said: amiss.append(said.text) if said.type in ("error", "warning") else None)
            for name, path in pages.items():
                page.goto(address + path)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                page.screenshot(path=tmp_path / f"{name}-{width}-{scheme}.png", full_page=True)
        page.goto(address + pages["sample"])
        page.locator("details.shots summary").click()
        assert page.locator("details.shots .turn").all_inner_texts()[0].split("\n\n") == ["user", "What is 100 + 1?"]
        page.get_by_role("link", name="text", exact=True).click()
        assert "**4**" in page.locator("pre.answer").first.inner_text()
        page.goto(address + pages["graph"])
        boxes = page.evaluate(
            "[...document.querySelectorAll('svg.plot rect.paper')].map(r => r.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) == 3
        assert not page.evaluate(CROSSED)
        browser.close()
    assert amiss == []


CROSSED = """
[...document.querySelectorAll('svg.plot polyline')].some((way, number) => {
  const nodes = [...document.querySelectorAll('svg.plot rect.panel')].map(r => r.getBBox());
  const labels = [...document.querySelectorAll('svg.plot rect.paper')].map(r => r.getBBox());
  let crossed = 0;
  const inside = (p, b, edge) => p.x > b.x + edge && p.x < b.x + b.width - edge && p.y > b.y + edge && p.y < b.y + b.height - edge;
  const met = new Set();
  for (let at = 0; at <= way.getTotalLength(); at += 1) {
    const point = way.getPointAtLength(at);
    if (nodes.some(b => inside(point, b, 1))) crossed += 1;
    labels.forEach((b, place) => { if (inside(point, b, 1)) met.add(place); });
  }
  return crossed > 0 || met.size > 1;
})
"""
"""Whether a line is within a node, or within more labels than its own."""
