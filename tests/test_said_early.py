"""Said before the run, or once: a hub that is unreachable, thinking with a small limit, many reasons that are one."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import simple_evaluate
from assay.models import Scripted
from assay.models.reasoning import template_thinks
from assay.records import Message, Prompt
from assay.runs.reasons import grouped_reasons
from assay.samples.hub import from_hub
from assay.user_code import UserCodeError
from commands import Run
from serving import Arrived, loopback
from small_runs import run, write_task

TEXT = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
Render = Callable[[tuple[Message, ...], bool], Prompt]


def rendering(opening: str, removes: bool) -> Render:
    """A chat template that begins an answer with `opening`, and may remove thinking from earlier answers."""

    def render(messages: tuple[Message, ...], opened: bool) -> Prompt:
        texts = [str(message.content) for message in messages]
        texts = [text.rpartition("</think>")[2] for text in texts] if removes else texts
        return "".join(f"<{text}>" for text in texts) + (f"<assistant>{opening}" if opened else "")

    return render


@pytest.mark.parametrize(
    ("render", "thinks"),
    [
        (rendering("", removes=False), False),
        (rendering("", removes=True), True),  # Qwen3's, with thinking switched on
        (rendering("<think>\n", removes=True), True),  # DeepSeek-R1's
        (rendering("<think>\n\n</think>\n\n", removes=True), False),  # Qwen3's, switched off
        (lambda messages, opened: messages, False),  # the server has the template
    ],
)
def test_templates_of_models_that_think(render: Render, thinks: bool) -> None:
    assert template_thinks(render) == thinks


@pytest.mark.parametrize(("limit", "warns"), [(256, True), (512, True), (513, False)])
def test_a_small_limit_for_a_model_that_thinks_is_reported(
    limit: int, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def template(messages: list[dict[str, Any]], opened: bool) -> str:
        turns = tuple(Message(each["role"], each["content"]) for each in messages)
        return str(rendering("<think>\n", removes=True)(turns, opened))

    write_task(tmp_path, [{"q": "1", "gold": "a"}], f"{TEXT}generation_kwargs: {{max_gen_toks: {limit}, until: []}}\n")
    run(tmp_path, Scripted(lambda prompt, params, repeat: "a", chat_template=template), apply_chat_template=True)
    assert ("the model thinks before it answers" in caplog.text) == warns
    assert ("max_gen_toks=4096" in caplog.text) == warns


def test_a_hub_that_is_unreachable_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    pytest.importorskip("datasets")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    offline: list[bool] = []

    def load() -> str:
        offline.append(constants.HF_HUB_OFFLINE)
        if len(offline) == 2:
            return "from the cache"
        raise FileNotFoundError("not here")

    with pytest.raises(
        UserCodeError, match=r"cannot be reached \(Connection refused\), and the cache does not have it"
    ):
        from_hub("a", load)
    assert from_hub("b", load) == "from the cache"
    assert offline == [True, True]
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_stops_answering_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    with socket.socket() as open_port:
        open_port.bind(("127.0.0.1", 0))
        open_port.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{open_port.getsockname()[1]}")
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        calls: list[str] = []

        def load() -> str:
            calls.append("load")
            raise ConnectionError("Couldn't reach 'org/first' on the Hub")

        for place, number in (
            ("a", 2),
            ("b", 3),
            ("c", 4),
        ):  # the first time with the network, then only from the cache
            with pytest.raises(UserCodeError, match="Couldn't reach a data set on the Hub"):
                from_hub(place, load)
            assert len(calls) == number


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        ({"HTTP 400: a": 2, "HTTP 500: a": 3}, ["5× HTTP 400–500: a"]),
        ({"no answer": 4}, ["4× no answer"]),
        (
            {f"{n} tokens exceed the model's context length of 1024 (from tokenizer_config.json)": 1 for n in (2074, 2100, 2151)},
            [
                "3× 2,074–2,151 tokens exceed the model's context length of 1024 (from tokenizer_config.json): give max_length=…"
                " in --model_args if the model takes more, or --over_length"
            ],
        ),
    ],
)  # fmt: skip
def test_reasons_that_differ_in_numbers_are_one(reasons: dict[str, int], lines: list[str]) -> None:
    assert grouped_reasons(reasons) == lines


def test_what_user_code_prints_is_not_part_of_the_table(tmp_path: Path, run_assay: Run) -> None:
    write_task(tmp_path, [{"q": "1", "gold": "a"}], TEXT.replace("doc_to_text: q", "doc_to_text: !function mine.text"))
    (tmp_path / "mine.py").write_text(
        "print('downloaded')\n\ndef text(doc):\n    print('asked')\n    return doc['q']\n"
    )
    ended = run_assay("run", "--tasks", "t", "--include_path", tmp_path, "--model", "dummy", "--no_output")
    assert ended.returncode in (0, 1), ended.stderr
    assert "downloaded" not in ended.stdout + ended.stderr
    assert "asked" not in ended.stdout
    assert "|t " in ended.stdout.replace("| t", "|t")


def thought(arrived: Arrived) -> Any:
    """The answer of a model that thinks, in the protocol of the path."""
    if arrived.path.endswith("/messages"):
        blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]
        return {"model": "m", "content": blocks, "stop_reason": "end_turn"}
    message = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize(("backend", "switches"), [("openai-chat", True), ("anthropic", False)])
def test_thinking_is_switched_off_by_an_argument_only_where_the_model_has_it(
    backend: str, switches: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path, [{"q": "1", "gold": "a"}], f"{TEXT}generation_kwargs: {{max_gen_toks: 256, until: []}}\n")
    with loopback(thought) as (url, _):
        simple_evaluate(backend, {"model": "m", "base_url": url}, tasks=["t"], include_path=str(tmp_path))
    assert "max_gen_toks=4096" in caplog.text
    assert ("enable_thinking" in caplog.text) == switches
