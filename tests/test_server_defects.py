"""A server that lacks what the tasks need is reported before the run, with a remedy, after at most five requests."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import assay
from assay.errors import ConfigError
from serving import Arrived, loopback
from small_runs import write_task

SUBJECTS = 57
CHOICES = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: ['yes', 'no']\ndoc_to_target: 0\n"
TEXT = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
SAMPLED = (
    TEXT + "generation_kwargs: {until: ['\\n'], do_sample: true, temperature: 0.5, top_k: 5, max_gen_toks: 4096}\n"
)
Body = Mapping[str, Any]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 57 subjects of choices, and two tasks that generate."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = [{"q": f"Is {number} a number, as far as you can say?", "gold": "yes"} for number in range(30)]
    for number in range(SUBJECTS):
        write_task(folder, rows, f"tag: subjects\n{CHOICES}", f"subject_{number}")
    write_task(folder, rows, TEXT, "text")
    write_task(folder, rows, SAMPLED, "sampled")
    write_task(folder, [{**row, "q": f"{row['q']} " * 100} for row in rows[:3]], TEXT, "long")
    return folder


def tokens(text: str) -> list[str]:
    """Words with the space before them: an echo that fits the text exactly."""
    words = text.split(" ")
    return [words[0], *(f" {word}" for word in words[1:])]


def echoed(body: Body) -> dict[str, Any]:
    """The answer of a server that reports everything about an echoed prompt."""
    pieces = [*tokens(body["prompt"]), "!"]
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    values = [None, *(-0.5 for _ in pieces[1:])]
    top = [None, *({piece: -0.5} for piece in pieces[1:])]
    logprobs = {"tokens": pieces, "token_logprobs": values, "top_logprobs": top, "text_offset": starts}
    return {"choices": [{"text": "".join(pieces), "finish_reason": "length", "logprobs": logprobs}]}


def sound(path: str, body: Body) -> Any:
    """The answer of a server without a defect."""
    if path.endswith("/models"):
        return {"data": []}
    if "messages" in body:
        return {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}
    return echoed(body) if body.get("echo") else {"choices": [{"text": "yes", "finish_reason": "stop"}]}


def without(key: str) -> Callable[[str, Body], Any]:
    def answer(path: str, body: Body) -> Any:
        said = sound(path, body)
        for choice in said.get("choices", ()) if body.get("echo") else ():
            choice["logprobs"].pop(key)
        return said

    return answer


def refusing(status: int, message: str, when: Callable[[str, Body], bool]) -> Callable[[str, Body], Any]:
    def answer(path: str, body: Body) -> Any:
        if not path.endswith("/models") and when(path, body):
            return status, {}, {"error": {"message": message}}
        return sound(path, body)

    return answer


def no_logprobs(path: str, body: Body) -> Any:
    said = sound(path, body)
    for choice in said.get("choices", ()):
        choice["logprobs"] = None
    return said


def short_logprobs(path: str, body: Body) -> Any:
    said = sound(path, body)
    for choice in said["choices"] if body.get("echo") else ():
        choice["logprobs"]["token_logprobs"].pop()
    return said


def only_streams(path: str, body: Body) -> Any:
    event = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}
    data = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode()
    return {"data": []} if path.endswith("/models") else (200, {"Content-Type": "text/event-stream"}, data)


class Defect(NamedTuple):
    """A server with a defect, the tasks and model it is met with, and words of the problem and its remedy."""

    answer: Callable[[str, Body], Any]
    words: tuple[str, ...]
    tasks: tuple[str, ...] = ("subjects",)
    model: str = "openai"
    arguments: Mapping[str, Any] = {}


def echoes(path: str, body: Body) -> bool:
    return bool(body.get("echo"))


DEFECTS = {
    "no text_offset": Defect(without("text_offset"), ("no text offsets", "tokenizer=FOLDER", "@generate")),
    "no token_logprobs": Defect(without("token_logprobs"), ("no log-probabilities", "@generate")),
    "no top_logprobs": Defect(without("top_logprobs"), ("no most likely tokens", "@generate")),
    "echo refused": Defect(refusing(400, "echo is not supported", echoes), ("HTTP 400: echo", "@generate")),
    "logprobs null": Defect(no_logprobs, ("no log-probabilities", "likelihoods=prompt")),
    "logprobs of another length": Defect(short_logprobs, ("lists of different lengths", "@generate")),
    "chat only": Defect(refusing(404, "Not Found", lambda path, body: "messages" not in body), ("--model openai-chat",)),
    "completions only": Defect(
        refusing(404, "Not Found", lambda path, body: "messages" in body), ("use --model openai",), ("text",), "openai-chat"
    ),
    "401": Defect(refusing(401, "no key", lambda path, body: True), ("HTTP 401", "api_key=env:NAME")),
    "403": Defect(refusing(403, "not yours", lambda path, body: True), ("HTTP 403", "api_key=env:NAME")),
    "403 for log-probabilities": Defect(refusing(403, "not in your plan", echoes), ("HTTP 403", "@generate")),
    "404 model": Defect(refusing(404, "no model 'm'", lambda path, body: True), ("HTTP 404: no model", "check the name")),
    "404 model of another name": Defect(
        lambda path, body: {"data": [{"id": "real-7b"}]} if path.endswith("/models")
        else (404, {}, {"error": {"message": "The model `m` does not exist."}}),
        ("check the name 'm'", "which has real-7b"),
    ),
    "no credit": Defect(
        lambda path, body: (429, {}, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}),
        ("HTTP 429: You exceeded", "add credit"),
    ),
    "FastAPI's error": Defect(lambda path, body: (404, {}, {"detail": "Not Found"}), ("HTTP 404: Not Found —",)),
    "no text at all": Defect(
        lambda path, body: {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
        ("no text", "server's log"), ("text",), "openai-chat",
    ),
    "no context at all": Defect(
        refusing(400, "maximum context length is 8 tokens", lambda path, body: True), ("HTTP 400", "longer context"), ("text",)
    ),
    "422 unknown parameter": Defect(
        refusing(422, "extra inputs are not permitted: top_k", lambda path, body: "top_k" in body),
        ("HTTP 422", "top_k", "--gen_kwargs"),
        ("subjects", "sampled"),
    ),
    "stop refused": Defect(
        refusing(400, "stop is not supported", lambda path, body: "stop" in body), ("stop is not supported",), ("text",)
    ),
    "seed refused": Defect(
        refusing(400, "unknown field seed", lambda path, body: "seed" in body and body.get("max_tokens") != 16),
        ("seed", "leave seed out"), ("text",), "openai-chat", {"seed": 3},
    ),
    "too small a context": Defect(
        refusing(400, "max_tokens is too large: 4096", lambda path, body: body["max_tokens"] > 2048),
        ("max_tokens is too large", "max_gen_toks=…"),
        ("subjects", "sampled"),
        "openai",
        {"stream": False},
    ),
    "no system role": Defect(
        refusing(
            400, "system role not supported", lambda path, body: any(m["role"] == "system" for m in body.get("messages", ()))
        ),
        ("system role", "--system_instruction"), ("text",), "openai-chat",
    ),
    "empty choices": Defect(
        lambda path, body: {"choices": [], "data": []}, ("no choices", "address of an API"), ("text",), "openai-chat"
    ),
    "HTML with 200": Defect(
        lambda path, body: b"<html>Welcome to nginx</html>", ("not JSON", "address of an API"), ("text",), "openai-chat"
    ),
    "streams only": Defect(only_streams, ("not JSON", "stream=true"), ("text",), "openai-chat", {"stream": False}),
}  # fmt: skip


def evaluate(folder: Path, url: str, defect: Defect, **options: Any) -> dict[str, Any]:
    model_args = {"model": "m", "base_url": url, **defect.arguments}
    if defect.model == "openai-chat":
        options |= {"apply_chat_template": True, "system_instruction": "Be brief."}
    return assay.simple_evaluate(
        defect.model, model_args, tasks=list(defect.tasks), include_path=str(folder), include_defaults=False, **options
    )


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_reported_after_at_most_five_requests(name: str, tasks: Path, tmp_path: Path) -> None:
    defect, folder = DEFECTS[name], tmp_path / "run"

    def answer(arrived: Arrived) -> Any:
        return defect.answer(arrived.path, json.loads(arrived.body or b"{}"))

    with loopback(answer) as (url, log), pytest.raises(ConfigError) as refused:
        evaluate(tasks, url, defect, output_path=str(folder))
    assert len(log) <= 5, [each.path for each in log]
    assert all(word in str(refused.value) for word in defect.words), str(refused.value)
    assert not folder.exists()  # the corrected command can use it


def test_the_requests_that_were_tried_are_not_sent_again(tasks: Path, tmp_path: Path) -> None:
    """57 × 30 × 2 log-likelihoods of which 30 × 2 differ, 30 greedy and 30 sampled texts; two probes, and the models page."""
    defect = Defect(lambda path, body: None, (), ("subjects", "text", "sampled"), arguments={"stream": False})
    with loopback(lambda each: sound(each.path, json.loads(each.body or b"{}"))) as (url, log):
        results = evaluate(tasks, url, defect, output_path=str(tmp_path / "run"))
        first = len(log)
        evaluate(tasks, url, defect, output_path=str(tmp_path / "run"))
    assert first == 60 + 30 + 30 + 3
    assert len(log) - first == 3  # the greeting alone
    account = results["assay"]["usage"]
    assert account["requests"] == 120
    assert account["tasks"]["sampled"]["requests"] == 30
    bodies = [json.loads(each.body) for each in log if each.method == "POST"]
    assert [("echo" in body, body.get("top_k")) for body in bodies[2:5]] == [(True, None), (False, 5), (True, None)]


def test_a_first_document_that_is_too_long_does_not_refuse_the_run(
    tasks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    defect = Defect(
        refusing(400, "maximum context length is 1024 tokens", lambda path, body: len(str(body["messages"])) > 1024),
        (), ("long", "text"), "openai-chat",
    )  # fmt: skip
    with loopback(lambda each: defect.answer(each.path, json.loads(each.body or b"{}"))) as (url, _):
        results = evaluate(tasks, url, defect)
    assert "the first document of task 'long' is refused: HTTP 400" in caplog.text
    assert results["assay"]["tasks"]["long"]["failed"] == 3
    assert results["results"]["text"]["exact_match,none"] == 1.0


def test_prices_without_usage_are_reported_before_the_run(tasks: Path, caplog: pytest.LogCaptureFixture) -> None:
    defect = Defect(sound, (), ("text",), "openai-chat", {"price_in": 1, "price_out": 2})
    with loopback(lambda each: sound(each.path, json.loads(each.body or b"{}"))) as (url, _):
        evaluate(tasks, url, defect)
    assert "reports no usage" in caplog.text
