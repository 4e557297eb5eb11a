"""assay against the servers that people use, each around one model: llama.cpp, transformers serve, LiteLLM's proxy, nginx, vLLM.

The other side is always transformers, in this process, on the same weights at float32. `make nightly` runs this file.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import assay
from assay.models.local.embedded import BUNDLED
from real_servers import (
    MASTER_KEY,
    NAME,
    VLLM,
    VLLM_ENVIRONMENT,
    executable,
    litellm_proxy,
    llama_server,
    nginx,
    transformers_server,
    vllm_server,
)

TEXTS, CHOICES = "first_steps_sums", "first_steps_larger"
LIMIT = 12
SAMPLED = '{"temperature": 2, "do_sample": true, "until": [], "max_gen_toks": 16}'
"""Longer than an answer: the answers themselves are too certain to differ."""
HF = f"hf,pretrained={BUNDLED},dtype=float32"


class Commands:
    """`assay` in a process, in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: object, code: int = 0, **environment: str) -> str:
        """The output of a command that must end with `code`."""
        ended = subprocess.run(
            [sys.executable, "-m", "assay", *map(str, arguments), "--no_color"],
            cwd=self.folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200", **environment}, timeout=600,
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def verify(self, other: str, task: str, *options: object, limit: int = LIMIT) -> None:
        """transformers and the other backend give the same answers."""
        output = self("verify-backend", HF, other, "--tasks", task, "--limit", limit, *options)
        assert "verdict: same" in output
        [counts] = re.findall(
            r"\|(?:greedy generations|log-likelihoods(?: of whole texts)?) *\|(\d+) *\|(\d+) *\|(\d*) *\|", output
        )
        assert counts[0] == counts[1], "not all was compared"

    def run(self, model: str, arguments: str, *options: object, task: str = TEXTS, name: str = "run") -> assay.Run:
        """A finished run of which nothing failed."""
        output = self.folder / name
        self(
            "run", "--model", model, "--model_args", arguments, "--tasks", task, "--limit", LIMIT, "--output_path", output,
            *options,
        )  # fmt: skip
        run = assay.Run.open(output)
        assert run.status == "complete"
        return run


@pytest.fixture
def command(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of LiteLLM's proxy; the other servers take any."""
    monkeypatch.setenv("NIGHTLY_KEY", MASTER_KEY)


@pytest.fixture(scope="session")
def score(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The share of right sums when transformers answers."""
    run = assay.run(
        "hf",
        tasks=[TEXTS],
        limit=LIMIT,
        model_args={"pretrained": str(BUNDLED), "dtype": "float32"},
        output_path=str(tmp_path_factory.mktemp("hf")),
    )
    return right_sums(run)


@pytest.fixture(scope="session")
def chat_score(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The same, as a conversation."""
    arguments = {"pretrained": str(BUNDLED), "dtype": "float32"}
    run = assay.run(
        "hf",
        tasks=[TEXTS],
        limit=LIMIT,
        model_args=arguments,
        apply_chat_template=True,
        output_path=str(tmp_path_factory.mktemp("hf")),
    )
    return right_sums(run)


def right_sums(run: assay.Run) -> float:
    """exact_match of the strict filter."""
    [row] = [row for row in run.scores().to_pylist() if row["metric"] == "exact_match" and row["filter"] == "strict"]
    return float(row["value"])


def texts(run: assay.Run) -> list[list[str]]:
    """All answers, by document."""
    rows = run.samples(TEXTS).to_pylist()
    return [[response["text"] for responses in row["responses"] for response in responses] for row in rows]


# llama.cpp


@pytest.fixture(scope="session")
def llama() -> Iterator[str]:
    with llama_server() as url:
        yield url


def at(url: str, *more: str) -> str:
    """Arguments of a model at a server."""
    return ",".join([f"model={NAME}", f"base_url={url}", *more])


WITH_TOKENIZER = f"tokenizer={BUNDLED}"


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_llama_cpp_completes_as_transformers_does(command: Commands, llama: str, stream: str) -> None:
    command.verify(f"openai,{at(llama, WITH_TOKENIZER, stream)}", TEXTS)


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_llama_cpp_chats_as_transformers_does(command: Commands, llama: str, stream: str) -> None:
    command.verify(f"openai-chat,{at(llama, stream)}", TEXTS, "--apply_chat_template")


def check_seed(command: Commands, backend: str, url: str) -> None:
    """Two runs with one seed draw the same answers, and repeats are draws, not copies."""
    arguments = at(url, "seed=7", *([WITH_TOKENIZER] * (backend == "openai")))
    sampled = ["--repeats", 3, "--gen_kwargs", SAMPLED]
    first, second = (texts(command.run(backend, arguments, *sampled, name=name)) for name in ("one", "two"))
    assert first == second
    assert any(len(set(answers)) > 1 for answers in first)


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_sampled_repeats_of_llama_cpp_are_the_same_with_the_same_seed(
    command: Commands, llama: str, backend: str
) -> None:
    check_seed(command, backend, llama)


def test_llama_cpp_has_log_likelihoods_through_its_own_endpoint(command: Commands, llama: str) -> None:
    command.verify(f"openai,{at(llama, WITH_TOKENIZER, 'likelihoods=llamacpp')}", CHOICES)
    command.verify(f"openai,{at(llama, 'likelihoods=llamacpp')}", CHOICES)
    command.verify(f"openai,{at(llama, 'likelihoods=llamacpp')}", "first_steps_stories")


def test_llama_cpp_without_log_likelihoods_of_prompts_is_refused_before_the_run(command: Commands, llama: str) -> None:
    output = command(
        "run", "--model", "openai", "--model_args", at(llama, WITH_TOKENIZER), "--tasks", CHOICES, "--limit", 2, code=2
    )
    assert "likelihoods=llamacpp" in output


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_letters_are_chosen_by_the_candidates_that_llama_cpp_generates(
    command: Commands, llama: str, tmp_path: Path, backend: str
) -> None:
    write_letters(tmp_path)
    arguments = at(llama, "likelihoods=generated", *([WITH_TOKENIZER] * (backend == "openai")))
    run = command.run(backend, arguments, "--include_path", tmp_path, task="letters")
    [row] = [row for row in run.scores().to_pylist() if row["metric"] == "acc"]
    assert row["n"] == LIMIT


def write_letters(folder: Path) -> None:
    """A task whose choices are one token each."""
    rows = [{"q": f"Which letter comes first: {one} or {other}?", "gold": 0} for one, other in ["ab", "cd", "ef"] * 4]
    (folder / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "letters.yaml").write_text(
        "task: letters\ndataset_path: json\ndataset_kwargs: {data_files: {test: letters.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{q}} Answer: '\ndoc_to_choice: [a, b, c, d]\ndoc_to_target: gold\n"
        "target_delimiter: ''\nmetric_list: [{metric: acc}]\nmetadata: {version: 1.0}\n"
    )


def test_usage_of_several_choices_counts_all_of_them(command: Commands, llama: str) -> None:
    """llama.cpp reports the tokens of one choice for four: it is asked for each alone."""
    run = command.run("openai-chat", at(llama), "--repeats", 4, "--gen_kwargs", SAMPLED)
    tokenizer = Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
    written = sum(len(tokenizer.encode(answer).ids) for answers in texts(run) for answer in answers)
    reported = run.usage["tokens"]
    assert isinstance(reported, dict)
    assert reported["out"] >= 0.9 * written, (reported, written)


def test_an_address_without_v1_is_named(command: Commands, llama: str) -> None:
    """llama.cpp answers without /v1, too; nginx in front of it does not."""
    with nginx(llama, location="if ($uri !~ ^/v1/) { return 404; }") as url:
        output = command(
            "run",
            "--model",
            "openai-chat",
            "--model_args",
            at(url.removesuffix("/v1")),
            "--tasks",
            TEXTS,
            "--limit",
            2,
            code=2,
        )
    assert "/v1" in output


# transformers serve


@pytest.fixture(scope="session")
def transformers_url() -> Iterator[str]:
    with transformers_server() as url:
        yield url


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_transformers_serve_chats_as_transformers_does(command: Commands, transformers_url: str, stream: str) -> None:
    arguments = f"model={BUNDLED},base_url={transformers_url},{stream}"
    command.verify(f"openai-chat,{arguments}", TEXTS, "--apply_chat_template")


def test_transformers_serve_completes_as_transformers_does(command: Commands, transformers_url: str) -> None:
    command.verify(f"openai,model={BUNDLED},base_url={transformers_url},{WITH_TOKENIZER}", TEXTS)


def test_the_revision_that_transformers_serve_adds_is_the_same_model(command: Commands, transformers_url: str) -> None:
    output = command(
        "run", "--model", "openai-chat", "--model_args", f"model={BUNDLED},base_url={transformers_url}", "--tasks", TEXTS,
        "--limit", 4, "--no_output",
    )  # fmt: skip
    assert "another model" not in output


# LiteLLM's proxy


@pytest.fixture(scope="session")
def litellm_url(llama: str) -> Iterator[str]:
    with litellm_proxy(llama) as url:
        yield url


def through_proxy(url: str, *more: str, name: str = NAME) -> str:
    """Arguments of a model behind LiteLLM's proxy; the key is in the environment."""
    return ",".join([f"model={name}", f"base_url={url}", "api_key=env:NIGHTLY_KEY", *more])


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_the_proxy_of_litellm_chats_as_transformers_does(command: Commands, litellm_url: str, stream: str) -> None:
    command.verify(f"openai-chat,{through_proxy(litellm_url, stream)}", TEXTS, "--apply_chat_template")


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_the_proxy_of_litellm_completes_as_transformers_does(command: Commands, litellm_url: str, stream: str) -> None:
    arguments = through_proxy(litellm_url, WITH_TOKENIZER, stream, name=f"{NAME}-text")
    command.verify(f"openai,{arguments}", TEXTS)


@pytest.mark.parametrize("suffix", ["/v1", ""])
def test_the_messages_api_of_litellms_proxy_answers(
    command: Commands, litellm_url: str, chat_score: float, suffix: str
) -> None:
    url = litellm_url.removesuffix("/v1") + suffix
    run = command.run("anthropic", through_proxy(url), "--gen_kwargs", "temperature=0")
    assert right_sums(run) == chat_score


def test_sampled_repeats_through_litellms_proxy(command: Commands, litellm_url: str) -> None:
    run = command.run("openai-chat", through_proxy(litellm_url), "--repeats", 3, "--gen_kwargs", SAMPLED)
    assert all(len(answers) == 3 for answers in texts(run))


def test_a_wrong_key_at_litellms_proxy_is_said(
    command: Commands, litellm_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTLY_KEY", "sk-wrong")
    output = command(
        "run",
        "--model",
        "openai-chat",
        "--model_args",
        through_proxy(litellm_url),
        "--tasks",
        TEXTS,
        "--limit",
        2,
        code=2,
    )
    assert "NIGHTLY_KEY" in output
    assert "sk-wrong" not in output


def test_the_library_litellm_reaches_llama_cpp(command: Commands, llama: str, chat_score: float) -> None:
    run = command.run("litellm", f"model=openai/{NAME},base_url={llama},api_key=env:NIGHTLY_KEY")
    assert right_sums(run) == chat_score


# nginx


@pytest.mark.parametrize("status", [429, 503])
def test_a_rate_limit_of_nginx_is_waited_for(command: Commands, llama: str, score: float, status: int) -> None:
    limits = f"limit_req_zone $server_name zone=one:1m rate=4r/s; limit_req_status {status};"
    with nginx(llama, limits, "limit_req zone=one burst=1 nodelay;") as url:
        run = command.run("openai", at(url, WITH_TOKENIZER))
    assert right_sums(run) == score


def test_a_limit_on_connections_of_nginx_is_waited_for(command: Commands, llama: str, score: float) -> None:
    limits = "limit_conn_zone $server_name zone=two:1m;"
    with nginx(llama, limits, "limit_conn two 1;") as url:
        run = command.run("openai", at(url, WITH_TOKENIZER))
    assert right_sums(run) == score


def test_a_proxy_without_its_server_is_refused_in_a_sentence(command: Commands) -> None:
    with nginx("http://127.0.0.1:9/v1") as url:
        output = command(
            "run", "--model", "openai", "--model_args", at(url, WITH_TOKENIZER), "--tasks", TEXTS, "--limit", 2, code=2
        )
    assert "502" in output


@pytest.mark.parametrize("limits", ["keepalive_requests 3;", "keepalive_timeout 0;"])
def test_connections_that_nginx_closes_lose_nothing(command: Commands, llama: str, score: float, limits: str) -> None:
    with nginx(llama, limits) as url:
        run = command.run("openai", at(url, WITH_TOKENIZER))
    assert right_sums(run) == score
    assert run.usage["retries"] == 0


# vLLM


@pytest.fixture(scope="session")
def vllm() -> Iterator[str]:
    with vllm_server("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-logprobs", "200") as url:
        yield url


@pytest.mark.parametrize("how", ["", "likelihoods=prompt"])
def test_log_likelihoods_of_vllm_are_those_of_transformers(command: Commands, vllm: str, how: str) -> None:
    command.verify(f"openai,{at(vllm, WITH_TOKENIZER, *filter(None, [how]))}", CHOICES)


def test_log_likelihoods_of_vllm_by_text_offsets(command: Commands, vllm: str) -> None:
    command.verify(f"openai,{at(vllm)}", CHOICES)


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_vllm_completes_as_transformers_does(command: Commands, vllm: str, stream: str) -> None:
    command.verify(f"openai,{at(vllm, WITH_TOKENIZER, stream)}", TEXTS)


@pytest.mark.parametrize("stream", ["stream=false", "stream=true"])
def test_vllm_chats_as_transformers_does(command: Commands, vllm: str, stream: str) -> None:
    command.verify(f"openai-chat,{at(vllm, stream)}", TEXTS, "--apply_chat_template")


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_sampled_repeats_of_vllm_are_the_same_with_the_same_seed(command: Commands, vllm: str, backend: str) -> None:
    check_seed(command, backend, vllm)


def test_letters_are_chosen_by_the_candidates_that_vllm_generates(command: Commands, vllm: str, tmp_path: Path) -> None:
    write_letters(tmp_path)
    run = command.run(
        "openai", at(vllm, WITH_TOKENIZER, "likelihoods=generated"), "--include_path", tmp_path, task="letters"
    )
    [row] = [row for row in run.scores().to_pylist() if row["metric"] == "acc"]
    assert row["n"] == LIMIT


def test_a_schema_reaches_vllm(command: Commands, vllm: str) -> None:
    """A schema that leaves no white space open: the small model would never end it."""
    wanted: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"enum": ["x"]}}},
        "until": [],
    }
    run = command.run("openai-chat", at(vllm), "--gen_kwargs", json.dumps(wanted))
    assert all(json.loads(answer) == "x" for answers in texts(run) for answer in answers)


def test_arguments_of_the_chat_template_reach_vllm(command: Commands, vllm: str, chat_score: float) -> None:
    run = command.run(
        "openai-chat", at(vllm), "--gen_kwargs", json.dumps({"chat_template_kwargs": {"enable_thinking": False}})
    )
    assert right_sums(run) == chat_score


def test_the_messages_api_of_vllm_answers(command: Commands, vllm: str, chat_score: float) -> None:
    run = command.run("anthropic", at(vllm, "api_key=env:NIGHTLY_KEY"), "--gen_kwargs", "temperature=0")
    assert right_sums(run) == chat_score


def test_the_library_litellm_reaches_vllm(command: Commands, vllm: str, chat_score: float) -> None:
    run = command.run("litellm", f"model=hosted_vllm/{NAME},base_url={vllm},api_key=env:NIGHTLY_KEY")
    assert right_sums(run) == chat_score


def test_assay_starts_evaluates_and_stops_vllm(command: Commands, score: float) -> None:
    serve = " ".join([executable("vllm", "vllm"), "serve", str(BUNDLED), *VLLM])
    output = command.folder / "run"
    command(
        "run", "--serve", serve, "--model_args", WITH_TOKENIZER, "--tasks", TEXTS, "--limit", LIMIT, "--output_path", output,
        **VLLM_ENVIRONMENT,
    )  # fmt: skip
    assert right_sums(assay.Run.open(output)) == score
