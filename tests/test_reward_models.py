"""Reward models: a number for an answer, from a server or from a folder."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.load import load_model
from assay.models.servers.server_model import GREETING
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Request
from serving import TALKING, Servers, fetched
from small_runs import SAMPLED, says, write_task

START = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def rewarded(
    folder: Path, answers: Sequence[Any], kwargs: str = "{}", yaml: str = "", **options: Any
) -> dict[str, Any]:
    rows = [{"q": f"{number}", "gold": "x"} for number in range(len(answers))]
    write_task(folder, rows, f"{START}{yaml}scorer: {{type: reward_model, kwargs: {kwargs}}}\n")
    known = {"include_path": str(folder), "include_defaults": False, **options}
    return assay.simple_evaluate(says(answers), tasks=["t"], **known)


def test_every_answer_has_the_number_its_model_gives(tmp_path: Path) -> None:
    model = Scripted(loglikelihood=lambda context, continuation: (float(context) + len(continuation), False))
    results = rewarded(tmp_path, ["abc", "a"], model_role={"reward": model})
    assert [sample["reward"] for sample in results["samples"]["t"]] == [3.0, 2.0]
    assert results["results"]["t"]["reward,none"] == 2.5


def test_repeats_have_a_reward_each(tmp_path: Path) -> None:
    model = Scripted(loglikelihood=lambda context, continuation: (float(len(continuation)), False))
    items = f"repeats: 2\n{SAMPLED}filter_list: [{{name: all, filter: [{{function: take_first_k, k: 2}}]}}]\n"
    results = rewarded(tmp_path, [["abc", "a"]], yaml=items, model_role={"reward": model})
    assert results["samples"]["t"][0]["scores_per_repeat"] == {"reward": [3.0, 1.0]}


def rewards(url: str, path: str) -> list[dict[str, Any]]:
    """What a server was asked to reward, greetings left out."""
    asked = [entry["body"] for entry in fetched(url, "/log") if entry["path"] == path]
    return [body for body in asked if GREETING not in json.dumps(body)]


@pytest.mark.parametrize(("way", "path"), [("pooling", "/pooling"), ("score", "/score")])
def test_a_server_is_asked_for_rewards(way: str, path: str, talking: str, tmp_path: Path) -> None:
    role = {"reward": f"reward-http,model=r,base_url={talking},way={way}"}
    results = rewarded(tmp_path, ["abc", "abcde"], model_role=role, output_path=str(tmp_path / "run"))
    assert [sample["reward"] for sample in results["samples"]["t"]] == [2.0, 4.0]
    bodies = rewards(talking, path)
    if way == "pooling":
        said = [{"role": "user", "content": "0"}, {"role": "assistant", "content": "abc"}]
        assert {"model": "r", "messages": said} in bodies
    else:
        assert {"model": "r", "text_1": "0", "text_2": "abc"} in bodies
    assert results["assay"]["usage"]["tokens"]["in"] == 10
    rewarded(tmp_path, ["abc", "abcde"], model_role=role, output_path=str(tmp_path / "run"))
    assert len(rewards(talking, path)) == len(bodies) == 2  # nothing is asked again


def test_a_server_that_returns_more_than_one_number_is_not_a_reward_model(talking: str, tmp_path: Path) -> None:
    role = {"reward": f"reward-http,model=r,base_url={talking}"}
    results = rewarded(tmp_path, ["abc", "several"], model_role=role)
    assert results["results"]["t"]["reward,none"] == 2.0
    assert "must return one number" in json.dumps(results["assay"])


# --- of a folder ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights and one label, and a tokenizer of single letters."""
    return tiny(tmp_path_factory.mktemp("reward"), labels=1)


def tiny(path: Path, labels: int, template: str | None = None, *, decoder: bool = False) -> Path:
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        LlamaConfig,
        LlamaForSequenceClassification,
        PreTrainedTokenizerFast,
    )

    letters = {letter: number for number, letter in enumerate(["[PAD]", "[UNK]", *map(chr, range(32, 127))])}
    built_tokenizer = Tokenizer(models.WordLevel(letters, unk_token="[UNK]"))
    built_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=built_tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=48
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    known: dict[str, Any] = {"vocab_size": len(letters), "num_labels": labels, "max_position_embeddings": 64, **sizes}
    if decoder:
        LlamaForSequenceClassification(LlamaConfig(**known, pad_token_id=0)).eval().save_pretrained(path)
    else:
        BertForSequenceClassification(BertConfig(**known)).eval().save_pretrained(path)
    return path


def by_hand(path: Path, text: str, other: str | None = None) -> list[float]:
    """The logits that transformers itself computes."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(path)(text, other, return_tensors="pt", add_special_tokens=other is not None)
    with torch.inference_mode():
        logits: list[float] = (
            AutoModelForSequenceClassification.from_pretrained(path).eval()(**tokens).logits[0].tolist()
        )
    return logits


def answers(model: Any, requests: Sequence[Request]) -> list[Any]:
    async def work() -> dict[int, Any]:
        return {number: each async for items in model.answer(requests) for number, each in items}

    result = asyncio.run(work())
    return [result[number] for number in range(len(requests))]


@pytest.mark.parametrize("decoder", [False, True])
def test_a_reward_model_gives_the_scores_of_transformers_for_any_batch(decoder: bool, tmp_path: Path) -> None:
    path = tiny(tmp_path, 1, decoder=decoder)
    pairs = [("six times seven?", "42"), ("a", "b"), ("hello", "a rather longer answer")]
    expected = [by_hand(path, *pair)[0] for pair in pairs]
    assert len(set(expected)) == 3
    for size in (1, 2, 8):
        model = load_model("reward-hf", {"path": str(path), "batch_size": size})
        responses = answers(model, [Loglikelihood(*pair) for pair in pairs])
        assert [each.value for each in responses] == pytest.approx(expected, abs=2e-5)


def test_a_chat_template_is_applied_where_there_is_one(tmp_path: Path) -> None:
    path = tiny(tmp_path, 1, "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}")
    [response] = answers(load_model("reward-hf", {"path": str(path)}), [Loglikelihood("q", "yes")])
    assert response.value == pytest.approx(by_hand(path, "u:q;a:yes;")[0], abs=2e-5)


def test_a_tokenizer_that_cannot_fill_up_is_asked_one_by_one(tmp_path: Path) -> None:
    path = tiny(tmp_path, 1)
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({**settings, "pad_token": None}))
    pairs = [("six times seven?", "42"), ("a", "b")]
    responses = answers(load_model("reward-hf", {"path": str(path)}), [Loglikelihood(*pair) for pair in pairs])
    assert [each.value for each in responses] == pytest.approx([by_hand(path, *pair)[0] for pair in pairs], abs=2e-5)


def test_input_that_is_too_long_or_without_an_answer_is_a_failure(folder: Path) -> None:
    model = load_model("reward-hf", {"path": str(folder)})
    long, text, short = answers(model, [Loglikelihood("q" * 40, "a" * 40), Generate("q", {}), Loglikelihood("q", "a")])
    assert long == Failed("80 tokens exceed the model's context length of 48")
    assert isinstance(text, Failed)
    assert isinstance(short, Likelihood)


def test_of_several_labels_one_must_be_named(tmp_path: Path) -> None:
    path = tiny(tmp_path, 3)
    with pytest.raises(ConfigError, match="select one with label="):
        load_model("reward-hf", {"path": str(path)})
    with pytest.raises(ConfigError, match="no label 'LABEL_9'"):
        load_model("reward-hf", {"path": str(path), "label": "LABEL_9"})
    for label, number in (("LABEL_2", 2), (1, 1)):
        [response] = answers(load_model("reward-hf", {"path": str(path), "label": label}), [Loglikelihood("q", "a")])
        assert response.value == pytest.approx(by_hand(path, "q", "a")[number], abs=2e-5)


def test_another_weight_is_another_identity(folder: Path, tmp_path: Path) -> None:
    one = load_model("reward-hf", {"path": str(folder)}).identity
    assert one == load_model("reward-hf", {"path": str(folder)}).identity
    assert one != load_model("reward-hf", {"path": str(tiny(tmp_path, 2)), "label": 0}).identity


def test_a_path_in_the_task_file_is_enough(folder: Path, tmp_path: Path) -> None:
    results = rewarded(tmp_path / "tasks", ["abc"], f"{{reward_model_path: {folder}}}")
    assert results["results"]["t"]["reward,none"] == pytest.approx(by_hand(folder, "0", "abc")[0], abs=2e-5)


@pytest.mark.parametrize(
    ("kwargs", "what"),
    [("{reward_model_path: nowhere}", "no model in 'nowhere'"), ("{role: model}", "invalid role"),
     ("{reward_model_path: a, reward_model: b}", "give one of them"), ("{path: a}", "has no parameter 'path'")],
)  # fmt: skip
def test_an_invalid_reward_model_is_refused(kwargs: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what):
        rewarded(tmp_path, ["abc"], kwargs)
