"""The embedded model, next to `transformers` on the same folder; and what it does with invalid requests."""

import asyncio
import json
import os
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.local.embedded import BUNDLED, Embedded
from assay.models.local.prefixes import prefix_trees
from assay.records import (
    Failed,
    Generate,
    Likelihood,
    Loglikelihood,
    Request,
    Response,
    Rolling,
    Text,
    plain_to_messages,
)


@cache
def embedded() -> Embedded:
    return Embedded()


@cache
def reference() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(BUNDLED, dtype="float32")
    return model.eval(), AutoTokenizer.from_pretrained(BUNDLED)


def answers(requests: Sequence[Request], model: Embedded | None = None) -> list[Response]:
    async def ask() -> list[Response]:
        responses: dict[int, Response] = {}
        async for items in (model or embedded()).answer(requests):
            responses.update(items)
        return [responses[number] for number in range(len(requests))]

    return asyncio.run(ask())


def likelihood(context: str, continuation: str) -> tuple[float, bool]:
    """Of `transformers`: context and continuation tokenized together, as lm-eval does."""
    import torch

    model, tokenizer = reference()
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    whole = tokenizer.encode(context + continuation, add_special_tokens=False)
    start = len(tokenizer.encode(context, add_special_tokens=False))
    if not context:
        whole, start = [tokenizer.eos_token_id, *whole], 1
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([whole[:-1]])).logits[0], dim=-1)[start - 1 :]
    input_ids = torch.tensor(whole[start:])
    return float(scores.gather(1, input_ids[:, None]).sum()), bool((scores.argmax(-1) == input_ids).all())


PAIRS = [
    ("2 + 3 =", " 5"), ("2 + 3 =", " 6"), ("2 + 3 = 5\n\n7 + 1 =", " 8"), ("", "One fish"), ("Anna went to the", " park."),
    ("One fish, two ", "fish"), ("Where is Ben?\n", "In the garden"), ("Anna ünd", " Ben"),
]  # fmt: skip


def test_log_likelihoods_are_those_of_transformers() -> None:
    responses = answers([Loglikelihood(*pair) for pair in PAIRS])
    for pair, response in zip(PAIRS, responses, strict=True):
        assert isinstance(response, Likelihood)
        value, greedy = likelihood(*pair)
        assert response.value == pytest.approx(value, abs=1e-3), pair
        assert response.greedy == greedy, pair


def test_many_requests_with_shared_prefixes_are_answered_as_one_by_one() -> None:
    draw = random.Random(5)
    shots = ["2 + 3 = 5\n\n", "One fox, two foxes\n\n", ""]
    requests = [
        Loglikelihood(f"{draw.choice(shots)}{draw.randint(1, 99)} + {draw.randint(1, 9)} =", f" {draw.randint(1, 120)}")
        for _ in range(60)
    ]
    for request, response in zip(requests, answers(requests), strict=True):
        assert isinstance(response, Likelihood)
        assert response.value == pytest.approx(likelihood(request.context, request.continuation)[0], abs=1e-3)


def test_a_whole_text_is_scored_as_transformers_scores_it_and_a_long_one_in_windows() -> None:
    import torch

    text = "Anna went to the park. There Anna found a red ball. "
    [response] = answers([Rolling(text)])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(likelihood("", text)[0], abs=1e-3)
    model, tokenizer = reference()
    tokens = tokenizer.encode(text * 120, add_special_tokens=False)
    limit = model.config.max_position_embeddings
    assert len(tokens) > limit
    [long] = answers([Rolling(text * 120)])
    assert isinstance(long, Likelihood)
    total, done = 0.0, 0
    while done < len(tokens):  # windows that do not overlap, each seeing one token of before; the last is a full one
        size = min(limit, len(tokens) - done)
        begin = done + size - limit if done else 0
        seen = [tokenizer.eos_token_id, *tokens][begin : done + size]
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([seen])).logits[0], dim=-1)[-size:]
        total += float(scores.gather(1, torch.tensor(tokens[done : done + size])[:, None]).sum())
        done += size
    assert long.value == pytest.approx(total, abs=1e-2)


def test_greedy_generation_is_that_of_transformers() -> None:
    import torch

    model, tokenizer = reference()
    prompts = ["2 + 3 =", "One fox, two", "5 + 5 = 10\n\n12 + 7 ="]
    responses = answers([Generate(prompt, {"until": [], "max_gen_toks": 12, "do_sample": False}) for prompt in prompts])
    for prompt, response in zip(prompts, responses, strict=True):
        input_ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)])
        tokens_out = model.generate(input_ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[
            0, input_ids.shape[1] :
        ]
        text = tokenizer.decode([token for token in tokens_out.tolist() if token not in (0, 4)])
        assert isinstance(response, Text)
        assert response.text == text


def test_the_chat_template_is_the_one_of_the_folder() -> None:
    messages = [{"role": "user", "content": "2 + 3 ="}, {"role": "assistant", "content": "So"}]
    _, tokenizer = reference()
    for opened, items in ((True, messages[:1]), (False, messages)):
        expected = tokenizer.apply_chat_template(items, tokenize=False, add_generation_prompt=opened)
        assert embedded().chat_template(plain_to_messages(items), opened) == expected


def test_generation_ends_at_a_stop_and_says_why() -> None:
    stopped, cut = answers(
        [
            Generate("4 + 4 = 8\n\n2 + 3 =", {"until": ["\n"], "max_gen_toks": 20, "do_sample": False}),
            Generate("Anna went to the", {"until": [], "max_gen_toks": 2, "do_sample": False}),
        ]
    )
    assert isinstance(stopped, Text) and isinstance(cut, Text)
    assert (stopped.text, stopped.finish) == (" 5", "stop")
    assert cut.finish == "length"


def test_a_sampled_answer_depends_on_prompt_and_repeat_alone() -> None:
    params = {"until": ["\n"], "max_gen_toks": 8, "do_sample": True, "temperature": 1.5}
    items = answers([Generate("One zub, two", params, repeat) for repeat in range(6)])
    assert items == answers([Generate("One zub, two", params, repeat) for repeat in range(6)])
    assert len(set(items)) > 1


def test_prompts_longer_than_the_context_fail_and_the_rest_is_answered() -> None:
    responses = answers(
        [
            Loglikelihood("word " * 2000, "x"),
            Generate("word " * 2000, {"until": []}),
            Loglikelihood("2 + 3 =", " 5"),
        ]
    )
    assert isinstance(responses[0], Failed) and isinstance(responses[1], Failed)
    assert "1024" in responses[0].reason
    assert isinstance(responses[2], Likelihood)


def test_another_folder_is_another_model(tmp_path: Any) -> None:
    for file in BUNDLED.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert Embedded(str(tmp_path)).identity == embedded().identity
    changed = json.loads((tmp_path / "config.json").read_text()) | {"rope_theta": 5000.0}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    assert Embedded(str(tmp_path)).identity != embedded().identity


def test_the_model_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in BUNDLED.iterdir()) <= 4 * 2**20


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_row_finds_its_tokens_again_in_the_shared_trees(rows: list[list[int]]) -> None:
    tuples = [tuple(row) for row in rows]
    result: dict[int, list[int]] = {}
    for cluster in prefix_trees(tuples, [1] * len(tuples)):
        for tree in cluster.trees:
            for number, path in tree.paths.items():
                result[number] = [*cluster.prefix, *(tree.tokens[node] for node in path)]
                assert [tree.depths[node] for node in path] == list(range(len(path)))
    assert result == dict(enumerate(rows))


def test_half_precision_weights_are_read_as_they_are() -> None:
    from safetensors.numpy import load_file

    weights = load_file(BUNDLED / "model.safetensors")
    assert {array.dtype for array in weights.values()} == {np.dtype("float16")}
    assert 1_000_000 < sum(array.size for array in weights.values()) < 2_000_000
