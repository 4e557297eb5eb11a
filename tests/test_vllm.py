"""Models in vLLM's engine. Against a stand-in that computes (tests/standin), or with ASSAY_VLLM=real against vLLM itself."""

import asyncio
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.evaluation.models import use_template
from assay.models.load import load_model
from assay.models.local import vllm as vllm_scoring
from assay.models.local.embedded import BUNDLED, Embedded
from assay.models.protocol import AnyModel
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Message, Request, Response, Rolling, Text

pytestmark = pytest.mark.slow  # whole runs: too long for `make quick`

STANDIN = Path(__file__).parent / "standin"
IS_REAL = os.environ.get("ASSAY_VLLM") == "real"
only_standin = pytest.mark.skipif(IS_REAL, reason="looks into the stand-in, or starts many engines")
CONTEXT = "Question: What is 2 + 3?\nAnswer:"
CHOICES = [" 5", " 7", " a", " the", " five apples", " z"]
GREEDY = {"until": ["\n"], "do_sample": False, "max_gen_toks": 24}


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def engine() -> Iterator[ModuleType]:
    """The module `vllm`: the stand-in, or the real one."""
    if not IS_REAL:
        forget()
        sys.path.insert(0, str(STANDIN))
    import vllm

    yield vllm
    if not IS_REAL:
        sys.path.remove(str(STANDIN))
        forget()


def make(**more: Any) -> Any:
    return load_model("vllm", {"pretrained": str(BUNDLED), "dtype": "float32", "enforce_eager": True, **more})


@pytest.fixture(scope="module")
def model(engine: ModuleType) -> Any:
    return make()


def ask(model: AnyModel, *requests: Request) -> list[Response]:
    """The responses, in the order of the requests; each once."""

    async def collect() -> list[tuple[int, Response]]:
        return [each async for answered in model.answer(requests) for each in answered]  # type: ignore[union-attr]

    result = asyncio.run(collect())
    assert sorted(number for number, _ in result) == list(range(len(requests)))
    return [response for _, response in sorted(result, key=lambda pair: pair[0])]


def agree(ours: list[Response], theirs: list[Response]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one, Likelihood)
        assert isinstance(other, Likelihood)
        assert one.value == pytest.approx(other.value, abs=1e-4 * max(1, abs(other.value)))
        assert one.greedy == other.greedy


def prompts_of(model: Any) -> list[tuple[int, dict[str, Any]]]:
    """What the stand-in was asked since it was last looked at: the length of each prompt, and its parameters."""
    asked = [(len(tokens), vars(params)) for call in model._engine.calls for tokens, params in zip(*call, strict=True)]
    model._engine.calls.clear()
    return asked


# against the embedded model, which is another implementation of the same


@pytest.mark.slow
def test_log_likelihoods_are_those_of_the_embedded_model(model: Any) -> None:
    requests: list[Request] = [Loglikelihood(CONTEXT, choice) for choice in CHOICES]
    requests += [Loglikelihood("The cat sat on the", " mat and slept"), Loglikelihood("", "Once upon a time")]
    requests += [Loglikelihood("ends with blanks  ", "word"), Loglikelihood("1, 2, 3,", " 4, 5, 6")]
    requests += [Rolling("The dog runs to the house. It is big.")]
    agree(ask(model, *requests), ask(Embedded(), *requests))


def test_a_continuation_is_greedy_only_where_each_of_its_tokens_is(model: Any) -> None:
    [said] = ask(Embedded(), Generate(CONTEXT, {"until": [], "do_sample": False, "max_gen_toks": 6}))
    assert isinstance(said, Text)
    right = Loglikelihood(CONTEXT, said.text)
    first_wrong = Loglikelihood(CONTEXT, " zebra" + said.text)
    responses = ask(model, right, first_wrong)
    assert [response.greedy for response in responses] == [True, False]  # type: ignore[union-attr]
    agree(responses, ask(Embedded(), right, first_wrong))


def test_more_choices_than_can_be_asked_about_by_number_are_answered_all(model: Any) -> None:
    requests = [Loglikelihood(CONTEXT, letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh"]
    agree(ask(model, *requests), ask(Embedded(), *requests))


@pytest.mark.slow
def test_a_text_longer_than_the_model_is_taken_in_windows_that_count_every_token_once(model: Any) -> None:
    words = "The little dog went to the market and saw a cat. " * 120
    [response] = ask(model, Rolling(words))
    assert isinstance(response, Likelihood)
    assert len(Embedded()._encode(words)) > 1024
    [whole] = ask(Embedded(), Rolling(words))
    assert isinstance(whole, Likelihood)
    assert response.value == pytest.approx(
        whole.value, rel=0.02
    )  # its windows are two tokens shorter: other contexts, same tokens
    assert ask(model, Rolling("")) == [Likelihood(0.0, True)]


def test_greedy_texts_are_those_of_the_embedded_model(model: Any) -> None:
    prompts = [CONTEXT, "Once upon a time", "Sort the letters: dcba\nAnswer:", ""]
    requests = [Generate(prompt, GREEDY) for prompt in prompts] + [Generate(CONTEXT, {**GREEDY, "until": ["5", "zzz"]})]
    ours, theirs = ask(model, *requests), ask(Embedded(), *requests)
    assert [(each.text, each.finish) for each in ours] == [(each.text, each.finish) for each in theirs]  # type: ignore[union-attr]


def test_all_kinds_can_be_asked_at_once(model: Any) -> None:
    requests: list[Request] = [
        Generate(CONTEXT, GREEDY),
        Loglikelihood(CONTEXT, " 5"),
        Rolling("a b c"),
        Generate("x", GREEDY),
    ]
    kinds = [type(response) for response in ask(model, *requests)]
    assert kinds == [Text, Likelihood, Likelihood, Text]


@only_standin
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_nan_fails_and_minus_infinity_does_not(value: float, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, bad_word = model._engine._scores, str(Embedded()._encode("Spoilt")).strip("[]")
    monkeypatch.setattr(
        model._engine, "_scores", lambda tokens: scores(tokens) + (value if bad_word in str(tokens) else 0)
    )
    bad = [Loglikelihood("Spoilt", " 5"), Loglikelihood("Spoilt", " five apples"), Rolling("Spoilt milk")]
    *failed, good = ask(model, *bad, Loglikelihood(CONTEXT, " 5"))
    assert all(
        isinstance(each, Failed) and ("infinite" if math.isinf(value) else "NaN") in each.reason for each in failed
    ), failed
    agree([good], ask(Embedded(), Loglikelihood(CONTEXT, " 5")))
    monkeypatch.setattr(model._engine, "_scores", lambda tokens: scores(tokens) - math.inf)
    assert [each.value for each in ask(model, *bad)] == [-math.inf] * 3  # type: ignore[union-attr]


# how it is asked


@only_standin
def test_one_token_choices_of_a_question_share_one_prompt(model: Any) -> None:
    prompts_of(model)
    ask(model, *(Loglikelihood(CONTEXT, choice) for choice in CHOICES))
    asked = prompts_of(model)
    length = len(Embedded()._encode(CONTEXT))
    assert [params["prompt_logprobs"] for size, params in asked if size == length] == [None]
    short = [choice for choice in CHOICES if len(Embedded()._encode(CONTEXT + choice)) == length + 1]
    assert len(short) >= 3
    assert len(asked) == 1 + len(CHOICES) - len(short)  # the longer ones, each by its own prompt
    assert all(params["max_tokens"] == 1 and params["temperature"] == 0 for _, params in asked)


@only_standin
def test_a_choice_that_is_not_among_the_likeliest_is_asked_for_and_never_invented(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine, "SamplingParams", engine.OldSamplingParams
    )  # which cannot be asked about tokens by number
    model = make()
    words, expected = Embedded(), {}
    for choice in [chr(65 + n) for n in range(26)]:
        if len(words._encode(CONTEXT + choice)) == len(words._encode(CONTEXT)) + 1:
            expected[choice] = ask(words, Loglikelihood(CONTEXT, choice))[0]
    responses = ask(model, *(Loglikelihood(CONTEXT, choice) for choice in expected))
    agree(responses, list(expected.values()))
    asked = prompts_of(model)
    assert [params["logprobs"] for _, params in asked if params["prompt_logprobs"] is None] == [20]
    assert 0 < sum(params["prompt_logprobs"] == 1 for _, params in asked) <= len(expected)


@only_standin
def test_prompts_leave_longest_first_and_in_calls_that_are_not_too_large(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_scoring, "MAX_CALL_TOKENS", 64)
    prompts_of(model)
    ask(model, *(Loglikelihood("The cat sat " * n, "on the mat") for n in (1, 5, 3, 9)))
    calls = [[len(tokens) for tokens in prompts] for prompts, _ in model._engine.calls]
    sizes = [size for call in calls for size in call]
    assert sizes == sorted(sizes, reverse=True)
    assert len(calls) > 1
    assert all(sum(call) <= 64 or len(call) == 1 for call in calls)


@only_standin
def test_generations_of_a_window_are_one_call(model: Any) -> None:
    model._engine.calls.clear()
    ask(model, *(Generate(f"{n} + {n} =", GREEDY) for n in range(5)))
    assert [len(prompts) for prompts, _ in model._engine.calls] == [5]


# sampling


def test_repeats_are_sampled_separately_and_reproducibly_in_any_batch(model: Any) -> None:
    drawn = {"do_sample": True, "temperature": 1.5, "until": [], "max_gen_toks": 12}
    items = [Generate("Once", drawn, repeat) for repeat in range(4)]
    first = ask(model, *items)
    assert len({response.text for response in first}) > 1  # type: ignore[union-attr]
    again = ask(model, Generate("Another prompt", GREEDY), *reversed(items))
    assert again[:0:-1] == first


@pytest.mark.slow
@only_standin
def test_seeds_differ_by_prompt_repeat_and_the_models_seed(model: Any) -> None:
    drawn = {"do_sample": True, "temperature": 1.0}
    requests = [Generate(prompt, drawn, repeat) for prompt in ("a", "b") for repeat in (0, 1)]
    prompts_of(model)
    ask(model, *requests)
    other = make(seed=7)
    ask(other, *requests)
    seeds = [params["seed"] for each in (model, other) for _, params in prompts_of(each)]
    assert len(set(seeds)) == 8
    ask(model, Generate("a", GREEDY))
    assert [params["seed"] for _, params in prompts_of(model)] == [None]


# what is too long


def test_a_prompt_that_is_too_long_fails_with_the_numbers(model: Any) -> None:
    long = "word " * 1100
    tokens = len(Embedded()._encode(long))
    responses = ask(model, Generate(long, GREEDY), Loglikelihood(long, " end"), Generate("a", GREEDY))
    assert responses[0] == Failed(f"{tokens} tokens exceed the model's context length of 1024")
    assert responses[1] == Failed("its tokens plus one generated token exceed the model's context length of 1024")
    assert isinstance(responses[2], Text)  # the others of the batch are answered


@only_standin
def test_with_truncate_the_beginning_is_cut_and_counted(engine: ModuleType) -> None:
    model = make(max_model_len=32, over_length="truncate")
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    tokens = Embedded()._encode(text)
    assert len(tokens) > 40
    [written, scored] = ask(model, Generate(text, {**GREEDY, "max_gen_toks": 8}), Loglikelihood(text, " end of it"))
    assert isinstance(written, Text)
    assert written.usage is not None
    assert written.usage.cut == len(tokens) - (32 - 8)
    assert isinstance(scored, Likelihood)
    assert scored.usage is not None
    assert scored.usage.cut == len(Embedded()._encode(text + " end of it")) - 31  # one token is generated
    assert all(size <= 31 for size, _ in prompts_of(model))


@only_standin
def test_the_token_limit_is_reduced_to_the_models_context(engine: ModuleType) -> None:
    model = make(max_model_len=32)
    prompt = "a " * 10
    [response] = ask(model, Generate(prompt, {"until": [], "do_sample": False, "max_gen_toks": 100}))
    assert isinstance(response, Text)
    [(size, params)] = prompts_of(model)
    assert params["max_tokens"] == 32 - size


# parameters


def test_a_parameter_that_the_engine_has_not_or_refuses_fails_its_request(model: Any) -> None:
    responses = ask(
        model, Generate("a", {**GREEDY, "beams": 4}), Generate("a", {**GREEDY, "top_p": 3.0}), Generate("a", GREEDY)
    )
    assert responses[0] == Failed("unsupported generation parameter 'beams'")
    assert isinstance(responses[1], Failed)
    assert "top_p must be in (0, 1]" in responses[1].reason
    assert isinstance(responses[2], Text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_parallel_size": 2}, "--replicas 2"),
        ({"max_model_len": 64, "max_length": 128}, "must be equal"),
        ({"enable_lora": True}, "lora_local_path=DIR"),
        ({"lora_local_path": "nowhere"}, "no folder named 'nowhere'"),
        ({"dtyp": "float32"}, "did you mean 'dtype'"),
        ({"gpu_memory_utilization": "much"}, "must be of type float"),
        ({"pretrained": "no/such/model"}, "'no/such/model'"),
    ],
)
def test_invalid_arguments_are_refused_before_the_engine_starts(
    engine: ModuleType, arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=message):
        make(**arguments)


@only_standin
def test_an_engine_that_does_not_start_is_an_error_with_its_message(engine: ModuleType) -> None:
    with pytest.raises(ConfigError, match="vllm does not start: Unknown dtype: float3"):
        make(dtype="float3")


@pytest.mark.skipif(IS_REAL, reason="it is installed")
def test_without_vllm_the_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match="\\[vllm\\]'"):
        make()


@only_standin
def test_arguments_reach_the_engine_under_its_names(engine: ModuleType, tmp_path: Path) -> None:
    model = make(batch_size=8, tensor_parallel_size=2, lora_local_path=str(tmp_path), max_lora_rank=32,
                 engine_args={"kv_cache_dtype": "fp8"})  # fmt: skip
    reported = model._engine.others
    expected = {
        "max_num_seqs": 8,
        "tensor_parallel_size": 2,
        "enable_lora": True,
        "max_lora_rank": 32,
        "kv_cache_dtype": "fp8",
    }
    assert {key: reported[key] for key in expected} == expected
    assert not reported["trust_remote_code"]
    ask(model, Generate("a", GREEDY))
    assert model._engine.lora.lora_path == str(tmp_path)


@only_standin
def test_thinking_is_kept_apart_and_stops_are_for_the_answer(engine: ModuleType) -> None:
    plain = make()
    [said] = ask(plain, Generate("Once upon a time", {"until": [], "do_sample": False, "max_gen_toks": 30}))
    assert isinstance(said, Text)
    middle = said.text[10:14]
    model = make(think_end_token=middle)
    prompts_of(model)
    [response] = ask(
        model, Generate("Once upon a time", {"until": [said.text[:3]], "do_sample": False, "max_gen_toks": 30})
    )
    assert isinstance(response, Text)
    assert response.reasoning is not None
    assert response.reasoning.startswith(said.text[:3].strip())
    assert prompts_of(model)[0][1]["stop"] == []


# identity


@only_standin
def test_its_identity_is_what_answers_depend_on(engine: ModuleType) -> None:
    first = make().identity
    assert make().identity == first
    assert make(gpu_memory_utilization=0.5, batch_size=4).identity == first
    for other in (
        {"dtype": "auto"},
        {"seed": 7},
        {"add_bos_token": True},
        {"over_length": "truncate"},
        {"max_length": 64},
    ):
        assert make(**other).identity != first, other


def test_conversations_are_written_as_by_the_embedded_model(model: Any) -> None:
    messages = (Message("system", "Be brief."), Message("user", "Hello"))
    assert model.chat_template(messages, True) == Embedded().chat_template(messages, True)
    assert model.count_tokens("Hello there") == Embedded().count_tokens("Hello there")


@only_standin
def test_a_template_is_taken_by_its_name_and_refused_where_there_is_none_of_it(
    engine: ModuleType, tmp_path: Path
) -> None:
    shutil.copy(BUNDLED / "tokenizer.json", tmp_path)
    loaded = json.loads((BUNDLED / "tokenizer_config.json").read_text())
    items = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ messages[0].content }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**loaded, "chat_template": items}))
    model, messages = make(tokenizer=str(tmp_path)), (Message("user", "Hello"),)
    assert model.chat_template(messages, True) == "D"
    use_template(model, "tool_use")
    assert model.chat_template(messages, True) == "THello"
    with pytest.raises(ConfigError, match="did you mean 'tool_use'"):
        use_template(model, "tool_yse")
    with pytest.raises(ConfigError, match="its only template has no name"):
        use_template(make(), "tool_use")
