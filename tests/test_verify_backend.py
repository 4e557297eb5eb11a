"""Two backends asked the same: what `assay verify-backend` finds, against what was put there."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from assay.comparison.compare import compare
from assay.comparison.verification import (
    PRECISIONS,
    LikelihoodDifferences,
    Tolerance,
    Verification,
    Where,
    first_difference,
    histogram,
    verification,
)
from assay.errors import ConfigError
from assay.evaluation.options import run_config
from assay.evaluation.verify import verify
from assay.models import Scripted
from assay.models.local.embedded import BUNDLED
from assay.report.comparison_text import verification_json, verification_text
from run_world import COLOURS, REQUESTS, SUMS, RecordingModel, journal
from serving import TRUTH, Arrived, Servers, loopback

FLOAT32 = PRECISIONS["float32"]
Assay = Callable[..., Any]


def compared(
    folder: Path,
    a: Any,
    b: Any,
    tolerance: Tolerance = FLOAT32,
    tasks: tuple[str, ...] = ("sums", "colours"),
    **options: Any,
) -> Verification:
    arguments = {"tasks": list(tasks), "include_path": str(folder), "include_defaults": False, **options}
    return verification(verify(a, b, run_config(arguments)), tolerance)


def answering(**changes: str) -> Scripted:
    """The model of run_world, but for some answers."""
    answers_by_question = {**{question: said for question, (_, said) in SUMS.items()}, **changes}
    likely = {
        (thing, choice): value
        for thing, (_, *values) in COLOURS.items()
        for choice, value in zip(("green", "red"), values, strict=True)
    }
    return Scripted(
        generate=lambda prompt, params, repeat: answers_by_question[prompt],
        loglikelihood=lambda context, choice: (likely[context.removesuffix(" is"), choice.strip()], False),
        identity=f"scripted {changes}",
    )


# what is the same


def test_a_model_is_the_same_as_itself(tasks: Path, run_assay: Assay) -> None:
    ended = run_assay("verify-backend", "embedded", "embedded", "--tasks", "sums", "colours", "--include_path", tasks,
                      "--no_defaults", "--format", "json")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    loaded = json.loads(ended.stdout)
    assert loaded["verdict"] == "same"
    assert loaded["requests"] == {
        "generate": {"asked": 5, "compared": 5, "not_comparable": 0},
        "loglikelihood": {"asked": 8, "compared": 8, "not_comparable": 0},
    }
    assert loaded["texts"] == {"compared": 5, "equal": 5, "divergences": []}
    assert (loaded["likelihoods"]["per_token"]["max"], loaded["choices"]) == (0.0, {"questions": 4, "flips": []})
    assert [row["drift"] for row in loaded["scores"]] == [0.0, 0.0]
    assert "the same model by their identity" in loaded["remarks"][0]


@pytest.fixture(scope="module")
def truth() -> Iterator[str]:
    servers = Servers()
    yield servers(BUNDLED, script=TRUTH)
    servers.end()


def test_the_embedded_model_is_verified_as_the_same_as_transformers_on_a_server(truth: str) -> None:
    tasks = ["first_steps_facts", "first_steps_cloze", "first_steps_reversing", "first_steps_stories"]
    server = f"openai,model=embedded,base_url={truth},tokenizer={BUNDLED},max_length=1024"
    verification_result = verification(verify("embedded", server, run_config({"tasks": tasks, "limit": 6})), FLOAT32)
    assert verification_result.verdict == "same", verification_text(verification_result)
    verified = verification_json(verification_result)
    assert {kind: row["compared"] for kind, row in verified["requests"].items()} == {
        "generate": 6, "loglikelihood": verified["likelihoods"]["compared"] - 6, "rolling": 6,
    }  # fmt: skip
    assert 0 < verified["likelihoods"]["per_token"]["max"] < 1e-4  # two implementations: not equal to the bit


# what differs


def perturbed(folder: Path, noise: float) -> Path:
    """The embedded model with noise in its weights."""
    shutil.copytree(BUNDLED, folder)
    for file in folder.glob("*.safetensors"):
        weights = load_file(file)
        drawn = np.random.default_rng(1)
        save_file(
            {name: (w + noise * drawn.standard_normal(w.shape)).astype(w.dtype) for name, w in weights.items()}, file
        )
    return folder


def test_noise_in_the_weights_is_found_and_its_drift_with_it(tmp_path: Path, run_assay: Assay) -> None:
    other = perturbed(tmp_path / "noisy", 0.05)
    ended = run_assay("verify-backend", "embedded", f"embedded,path={other}", "--tasks", "first_steps_stories",
                      "first_steps_reversing", "first_steps_facts", "--limit", 20, "--format", "json")  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    loaded = json.loads(ended.stdout)
    assert loaded["verdict"] == "differ"
    off = {row["metric"]: row["drift"] for row in loaded["scores"] if row["off"]}
    assert off["bits_per_byte"] > 0  # noise makes texts less likely
    assert loaded["likelihoods"]["per_token"]["median"] > 1e-4
    assert loaded["texts"]["divergences"][0]["tokens"] is not None


def test_a_little_noise_drifts_without_a_score_that_shows_it(tmp_path: Path, run_assay: Assay) -> None:
    other = perturbed(tmp_path / "noisy", 0.0005)
    command = ["verify-backend", "embedded", f"embedded,path={other}", "--tasks", "first_steps_facts", "--limit", "5"]
    ended = run_assay(*command)
    assert (ended.returncode, "verdict: drifts" in ended.stdout) == (1, True), ended.stdout
    assert run_assay(*command, "--accept", "drifts").returncode == 0
    assert run_assay(*command, "--tolerance", "0.5").returncode == 0


def test_the_first_differing_token_is_reported(tasks: Path) -> None:
    a, b = answering(**{"2+3=": "five it is"}), answering(**{"2+3=": "five, yes"})
    comparison = compared(tasks, a, b, tasks=("sums",))
    [divergence] = comparison.answers.divergences
    assert (divergence.where, divergence.characters, divergence.tokens) == (Where("sums", 1, 0), 4, None)
    assert comparison.verdict == "drifts"  # both are wrong: no score differs
    text = verification_text(comparison)
    assert "4 of 5 are equal" in text
    assert "A 'five it is'" in text
    assert "B 'five, yes'" in text


class Counting(Scripted):
    """A script that counts words as tokens, and puts a token before every text, as many tokenizers do."""

    def count_tokens(self, text: str) -> int | None:
        return 1 + len(text.split())


def test_positions_are_counted_in_tokens_where_a_model_counts_them(tasks: Path) -> None:
    said = iter(["one two three four", "one two THREE four"])
    models = [Counting(generate=lambda p, k, r, text=text: text, identity=text) for text in said]
    comparison = compared(tasks, *models, tasks=("sums",))
    assert {(each.tokens, each.characters) for each in comparison.answers.divergences} == {(2, 8)}


def test_a_difference_is_divided_by_the_tokens_of_the_continuation_and_no_others(tasks: Path) -> None:
    models = [Counting(loglikelihood=lambda _, choice, by=by: (-1.0 - by, False)) for by in (0.0, 0.00018)]
    comparison = compared(tasks, *models, tasks=("colours",))
    assert {(each.tokens, round(each.per_token, 6)) for each in comparison.answers.likelihoods} == {(1, 0.00018)}
    assert comparison.verdict == "drifts"  # half of it would have been within the tolerance


def test_a_whole_text_is_tokenized_by_itself(write: Callable[..., Path]) -> None:
    task = """
        task: story
        dataset_path: json
        dataset_kwargs: {data_files: {test: story.jsonl}}
        test_split: test
        output_type: loglikelihood_rolling
        doc_to_text: ""
        doc_to_target: text
        metric_list: [{metric: bits_per_byte}]
    """
    folder = write({"story.yaml": task, "story.jsonl": json.dumps({"text": "one two three"}) + "\n"})
    models = [Counting(loglikelihood_rolling=lambda _, by=by: -1.0 - by) for by in (0.0, 0.3)]
    [result] = compared(folder, *models, tasks=("story",)).answers.likelihoods
    assert (result.tokens, result.per_token) == (3, pytest.approx(0.1))


def test_score_drift_is_that_of_the_same_documents(tasks: Path) -> None:
    """A has 3 of 5 right; B misses one of them, and gets one that A misses: no drift, two documents that changed."""
    comparison = compared(tasks, answering(), answering(**{"1+1=": "3", "8/2=": "4"}), tasks=("sums",))
    [row] = comparison.rows
    assert (row.metric, row.drift.before, row.drift.after, row.drift.change.n) == ("exact_match", 0.6, 0.6, 5)
    variance = (2 / 4) / 5  # differences -1, 0, 0, 0, 1
    half = 1.959964 * math.sqrt(variance + 1 / 5**2) * 5 / 6  # half a document is added on either side
    assert row.drift.change.interval == pytest.approx((-half, half), abs=1e-6)
    assert comparison.verdict == "drifts"


def test_flipped_choices_are_reported_and_log_likelihoods_counted_by_request(tasks: Path) -> None:
    def otherwise(context: str, choice: str) -> tuple[float, bool]:
        return (-0.5 if choice.strip() == "red" else -1.0, False)  # always red

    comparison = compared(tasks, answering(), Scripted(loglikelihood=otherwise), tasks=("colours",))
    assert [flip.where.doc_id for flip in comparison.answers.flips] == [0, 2, 3]  # A chooses green, red, green, green
    assert comparison.answers.questions == 4
    expected = sorted(
        abs(value - other) for _, *values in COLOURS.values() for value, other in zip(values, (-1.0, -0.5), strict=True)
    )
    assert sorted(each.difference for each in comparison.answers.likelihoods) == pytest.approx(expected)
    assert "neither model counts tokens" in verification_text(comparison)


# what cannot be compared


def test_requests_that_one_backend_cannot_answer_are_reported_as_not_comparable(tasks: Path) -> None:
    silent = Scripted(generate=lambda prompt, params, repeat: SUMS[prompt][1])
    comparison = compared(tasks, silent, answering())
    verification_result = verification_json(comparison)
    assert verification_result["requests"]["loglikelihood"] == {"asked": 0, "compared": 0, "not_comparable": 8}
    assert verification_result["not_comparable"] == [
        {"task": "colours", "reason": "A (scripted) cannot give log-likelihoods", "requests": {"loglikelihood": 8}}
    ]
    assert comparison.verdict == "same"
    assert "(of what can be compared)" in verification_text(comparison)


def test_where_nothing_can_be_compared_nothing_is_asked(tasks: Path) -> None:
    asked = RecordingModel()
    with pytest.raises(ConfigError, match="cannot give log-likelihoods"):
        compared(tasks, asked.model, Scripted(generate=lambda prompt, params, repeat: ""), tasks=("colours",))
    assert asked.calls == []


def test_a_request_that_one_of_the_two_fails_makes_them_differ(tasks: Path) -> None:
    asked = RecordingModel(failing={"2+3="})
    comparison = compared(tasks, answering(), asked.model, tasks=("sums",))
    assert comparison.verdict == "differ"
    assert "B failed 1 requests:\n  1 × TimeoutError: no answer to 2+3=" in verification_text(comparison)
    assert comparison.rows[0].drift.change.n == 4


def test_requests_that_both_fail_are_reported_and_not_a_difference(tasks: Path) -> None:
    comparison = compared(
        tasks, RecordingModel(failing={"2+3="}).model, RecordingModel(failing={"2+3="}).model, tasks=("sums",)
    )
    assert (comparison.verdict, len(comparison.answers.failures), comparison.answers.compared["generate"]) == (
        "same",
        1,
        4,
    )


def test_sampled_generations_are_compared_by_their_scores_alone(tasks: Path) -> None:
    comparison = compared(
        tasks,
        answering(),
        answering(**{"8/2=": "nothing"}),
        tasks=("sums",),
        gen_kwargs={"do_sample": True, "temperature": 1.0},
    )
    assert verification_json(comparison)["requests"] == {"sampled": {"asked": 5, "compared": 0, "not_comparable": 0}}
    assert comparison.verdict == "same"
    assert len(comparison.rows) == 1


# runs


def test_both_runs_are_kept_and_resumed(tasks: Path, tmp_path: Path) -> None:
    models = [RecordingModel(), RecordingModel()]
    first = compared(tasks, models[0].model, models[1].model, output_path=str(tmp_path / "both"))
    assert [len(each.calls) for each in models] == [REQUESTS, REQUESTS]
    assert [len(journal(tmp_path / "both" / side)) for side in "ab"] == [REQUESTS, REQUESTS]
    again = [RecordingModel(), RecordingModel()]
    second = compared(tasks, again[0].model, again[1].model, output_path=str(tmp_path / "both"))
    assert [each.calls for each in again] == [[], []]
    assert verification_json(second) == verification_json(first)


def test_the_second_model_is_asked_the_prompts_of_the_first(tasks: Path) -> None:
    asked: list[str] = []
    collected: list[str] = []

    def note(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(prompt)
        return "2"

    def shout(messages: list[dict[str, str]], opened: bool) -> str:
        collected.append(messages[-1]["content"])
        return collected[-1].upper() + "!"

    a = Scripted(generate=lambda prompt, params, repeat: "2", chat_template=shout)
    b = Scripted(generate=note, chat_template=lambda messages, opened: "never used")
    comparison = compared(tasks, a, b, tasks=("sums",), apply_chat_template=True)
    assert asked == [f"{question}!" for question in SUMS]
    assert [each for each in collected if each in SUMS] == list(SUMS)  # each once: what was made for A is sent to B
    assert "prompts were made with A's chat template" in verification_text(comparison)


def rendered(messages: list[dict[str, Any]], opened: bool) -> str:
    """A chat template; the server has the same."""
    turns = "".join(f"[{message['role']}] {message['content']}\n" for message in messages)
    return turns + ("[assistant] " if opened else "")


def continued(prompt: str) -> tuple[str, str]:
    """What the weights make of a rendered prompt: reasoning and an answer, different for every prompt."""
    marks = hashlib.sha256(prompt.encode()).hexdigest()
    return f"I think {marks[:6]}", f"It is {marks[6:12]}"


@contextmanager
def chat_server(change: Callable[[str, str], tuple[str, str]] = lambda *said: said) -> Iterator[tuple[str, list[Any]]]:
    """A chat server of the same weights and template, which keeps the reasoning apart as vLLM's parser does."""

    def answer(arrived: Arrived) -> Any:
        body = json.loads(arrived.body or b"{}")
        if "messages" not in body:
            return {"data": []}
        thought, said = change(*continued(rendered(body["messages"], True)))
        message = {
            "role": "assistant",
            "content": f"\n\n{said}" if said else None,
            "reasoning_content": f"\n{thought}\n",
        }
        reason = "stop" if said else "length"
        return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "model": "m"}

    with loopback(answer) as (url, arrived):
        yield f"openai-chat,model=m,base_url={url},max_retries=1", arrived


def weights(prompt: str, params: Any = None, repeat: int = 0) -> str:
    thought, said = continued(prompt)
    return f"<think>\n{thought}\n</think>\n\n{said}"


CHAT: dict[str, Any] = {
    "tasks": ("sums",), "apply_chat_template": True, "num_fewshot": 1, "system_instruction": "Be brief.",
    "gen_kwargs": {"until": ["STOP"]},
}  # fmt: skip


@pytest.mark.parametrize("is_first", [True, False])
def test_a_model_and_a_chat_server_of_the_same_weights_are_the_same(tasks: Path, is_first: bool) -> None:
    """The server takes messages: what the template made of them would be one message of the user."""
    with chat_server() as (server, arrived):
        pair = (Scripted(generate=weights, chat_template=rendered), server)
        comparison = compared(tasks, *(pair if is_first else pair[::-1]), **CHAT)
    answers = comparison.answers
    assert (answers.compared["generate"], answers.divergences, comparison.verdict) == (5, [], "same")
    bodies = [json.loads(each.body)["messages"] for each in arrived if b"Be brief" in each.body]
    assert len(bodies) == 5
    assert all([message["role"] for message in body] == ["system", "user", "assistant", "user"] for body in bodies)
    text = verification_text(comparison)
    assert "each applied its own chat template" in text
    assert "A's chat template" not in text


def test_reasoning_is_compared_with_reasoning_and_an_answer_with_an_answer(tasks: Path) -> None:
    def other_answer(thought: str, said: str) -> tuple[str, str]:
        return thought, said.replace("It is", "It was")

    def other_thought(thought: str, said: str) -> tuple[str, str]:
        return thought.replace("I think", "I say"), said

    local = Scripted(generate=weights, chat_template=rendered)
    for change, part, characters in ((other_answer, "answer", 3), (other_thought, "reasoning", 2)):
        with chat_server(change) as (server, _):
            divergences = compared(tasks, local, server, **CHAT).answers.divergences
        assert {(each.part, each.characters) for each in divergences} == {(part, characters)}
        assert len(divergences) == 5


def test_reasoning_that_neither_of_the_two_ended_is_equal(tasks: Path) -> None:
    """The template opened the reasoning: the text has no tag at all."""
    local = Scripted(generate=lambda prompt, params, repeat: continued(prompt)[0], chat_template=rendered)
    with chat_server(lambda thought, said: (thought, "")) as (server, _):
        assert compared(tasks, local, server, **CHAT).answers.divergences == []


def test_a_template_that_is_named_is_one_of_the_first_model_alone(tasks: Path) -> None:
    class Named(Scripted):
        def use_template(self, name: str) -> None:
            used.append(name)

    used: list[str] = []
    a = Named(generate=lambda prompt, params, repeat: "2", chat_template=lambda messages, opened: "a prompt")
    a.can = replace(a.can, named_templates=True)
    comparison = compared(tasks, a, "dummy", tasks=("sums",), apply_chat_template="tool_use")
    assert (used, comparison.answers.compared["generate"]) == (["tool_use"], 5)


def test_invalid_arguments_are_refused(run_assay: Assay) -> None:
    ended = run_assay("verify-backend", "embedded", "embeded", "--tasks", "first_steps_facts")
    assert (ended.returncode, "did you mean 'embedded'" in ended.stderr) == (2, True), ended.stderr
    ended = run_assay("verify-backend", "embedded", "embedded", "--tasks", "first_steps_facts", "--tolerance", "-1")
    assert (ended.returncode, "must be at least 0" in ended.stderr) == (2, True)


def test_drifts_are_those_of_a_comparison_of_the_two_runs(tasks: Path, tmp_path: Path) -> None:
    """`assay compare` reads what was stored: another way to the same numbers."""
    output = tmp_path / "both"
    comparison = compared(
        tasks, answering(), answering(**{"1+1=": "3", "7-4=": "3", "8/2=": "4"}), output_path=str(output)
    )
    rows = {(row.name, row.metric): row for row in compare([output / "a", output / "b"]).rows}
    assert len(comparison.rows) == 2
    for row in comparison.rows:
        other = rows[row.task, row.metric]
        assert other.difference.interval is not None
        assert (row.drift.change.value, row.drift.change.interval) == (
            pytest.approx(other.difference.value),
            pytest.approx(other.difference.interval),
        )


# parts


def test_two_impossible_continuations_do_not_differ() -> None:
    assert LikelihoodDifferences(Where("t", 0, 0), -math.inf, -math.inf, 1).difference == 0


@given(st.text(), st.text())
def test_texts_agree_up_to_where_they_part_and_no_further(a: str, b: str) -> None:
    at = first_difference(a, b)
    if at is None:
        assert a == b
    else:
        assert a[:at] == b[:at]
        assert a[at : at + 1] != b[at : at + 1]
        assert first_difference(b, a) == at


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_counts_everything_once(values: list[float]) -> None:
    bars = histogram(values, (0.0, 0.5, 2.0, math.inf))
    assert [count for _, count in bars] == [
        sum(v == 0 for v in values),
        sum(0 < v <= 0.5 for v in values),
        sum(0.5 < v <= 2 for v in values),
        sum(v > 2 for v in values),
    ]
