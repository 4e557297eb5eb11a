"""A model that attends to later tokens is refused where a pass over a continuation would have read it, and nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from bench import architectures
from bench.architectures import ARCHITECTURES, UNKNOWN

from assay import simple_evaluate
from assay.cli import main
from assay.errors import ConfigError
from assay.models.local.hf.backend import HF
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Rolling, Text
from hf_world import GQA, SMALL, answers, build, generated, numbers, text, words
from kinds import mostly_nightly
from small_runs import write_task

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers, about its own fields
SEES = "depend on later tokens, and a continuation would be scored after it has been read"


class BlockDiffusion(transformers.LlamaForCausalLM):
    """A Llama that attends in both directions within blocks of four tokens, as diffusion LMs with blocks do."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **options: Any) -> Any:
        block = torch.arange(input_ids.shape[1]) // 4
        sees = (block[:, None] >= block[None]).expand(len(input_ids), 1, -1, -1)
        options |= {"use_cache": False, "past_key_values": None}
        return super().forward(input_ids, sees, **options)


class PrefixLM(transformers.GPT2LMHeadModel):
    """A GPT-2 whose first eight tokens see each other; it moves the logits of few tokens."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **options: Any) -> Any:
        at = torch.arange(input_ids.shape[1])
        sees = (at[None] <= at[:, None]) | (at[None] < len(at) * (at[:, None] < 8))
        options |= {"use_cache": False, "past_key_values": None}
        return super().forward(input_ids, attention_mask=sees.expand(len(input_ids), 1, -1, -1), **options)


NOT_CAUSAL: dict[str, Callable[[], Any]] = {
    "bert": lambda: transformers.BertLMHeadModel(transformers.BertConfig(**SMALL)),
    "roberta": lambda: transformers.RobertaForCausalLM(transformers.RobertaConfig(**SMALL | {"pad_token_id": UNKNOWN})),
    "electra": lambda: transformers.ElectraForCausalLM(transformers.ElectraConfig(**SMALL, embedding_size=32)),
    "one layer": lambda: transformers.BertLMHeadModel(transformers.BertConfig(**SMALL | {"num_hidden_layers": 1})),
    "gemma3 for embeddings": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**GQA, head_dim=16, sliding_window=32, use_bidirectional_attention=True)
    ),
    "block diffusion": lambda: BlockDiffusion(transformers.LlamaConfig(**GQA)),
    "prefix LM": lambda: PrefixLM(transformers.GPT2Config(vocab_size=120, n_embd=32, n_layer=2, n_head=4)),
}


def made(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model = NOT_CAUSAL[kind]().eval().to(dtype)
    if isinstance(model, BlockDiffusion | PrefixLM):
        model.generation_config.use_cache = False  # what a token sees changes with every step
    return model


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """A task of choices, one of whole texts and one of generated texts."""
    rows = [{"q": "w5 w6", "a": " w7"}, {"q": "w8 w9 w10", "a": " w11"}]
    choices = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: [w5 w6, w7]\ndoc_to_target: 0\n"
    write_task(tmp_path, rows, choices + "metric_list: [{metric: acc}]\n", name="choices")
    whole = "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: q\n"
    write_task(tmp_path, rows, whole + "metric_list: [{metric: bits_per_byte}]\n", name="whole")
    texts = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: a\ngeneration_kwargs: {until: [], max_gen_toks: 6}\n"
    write_task(tmp_path, rows, texts + "metric_list: [{metric: exact_match}]\n", name="texts")
    return str(tmp_path)


def evaluated(model: Any, name: str, tasks: str) -> dict[str, Any]:
    return simple_evaluate(model, tasks=[name], include_path=tasks, include_defaults=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", NOT_CAUSAL)
def test_tasks_of_log_likelihoods_refuse_a_model_whose_logits_depend_on_later_tokens(
    kind: str, dtype: torch.dtype, tasks: str
) -> None:
    model = HF(made(kind, dtype), tokenizer=words())
    name = type(made(kind)).__name__
    with pytest.raises(ConfigError, match=f"give log-likelihoods, and 'hf' cannot: the logits of {name} {SEES}"):
        evaluated(model, "choices", tasks)
    with pytest.raises(
        ConfigError, match=f"log-likelihood of whole texts, and 'hf' cannot: the logits of {name} {SEES}"
    ):
        evaluated(model, "whole", tasks)


@pytest.mark.parametrize("kind", NOT_CAUSAL)
def test_texts_of_such_a_model_are_those_of_plain_transformers(kind: str, tasks: str) -> None:
    prompts = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [5, 6, 7, 8]]
    asked = [Generate(text(prompt), {"until": [], "max_gen_toks": 6, "do_sample": False}) for prompt in prompts]
    written = answers(HF(made(kind), tokenizer=words()), asked)
    expected = [[token for token in generated(made(kind), each, 6) if token > UNKNOWN] for each in prompts]
    assert [numbers(each.text) for each in written if isinstance(each, Text)] == expected
    assert evaluated(HF(made(kind), tokenizer=words()), "texts", tasks)["results"]["texts"]["exact_match,none"] == 0


def test_a_folder_of_such_a_model_is_refused_by_the_command_before_any_request(
    tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made("bert").save_pretrained(tmp_path / "model")
    words().save_pretrained(tmp_path / "model")
    command = ["run", "--model", "hf", "--model_args", f"pretrained={tmp_path / 'model'},share_prefixes=false"]
    assert main([*command, "--include_path", tasks, "--no_defaults", "--tasks", "choices"]) == 2
    said = capsys.readouterr().err
    assert f"the logits of BertLMHeadModel {SEES}" in said
    assert "choices@generate" in said


def test_a_model_without_a_limit_of_its_length_is_tried_as_others_are(tasks: str) -> None:
    """XLNet's `max_position_embeddings` is -1."""
    model = transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(vocab_size=120, d_model=32, n_layer=2, n_head=4, d_inner=64)
    )
    with pytest.raises(ConfigError, match=f"the logits of XLNetLMHeadModel {SEES}"):
        evaluated(HF(model.eval(), tokenizer=words()), "choices", tasks)


def test_a_model_that_asserts_where_its_states_are_tried_is_asked_without_them() -> None:
    """ProphetNet takes one token after a state, by an `assert`. Expected is a pass of plain transformers."""
    torch.manual_seed(0)
    config = transformers.ProphetNetConfig(
        vocab_size=120, hidden_size=32, num_decoder_layers=2, num_decoder_attention_heads=4, decoder_ffn_dim=64,
        num_encoder_layers=2, num_encoder_attention_heads=4, encoder_ffn_dim=64,
    )  # fmt: skip
    model = transformers.ProphetNetForCausalLM(config).eval()
    read = torch.tensor([[5, 6, 7]])  # the last token of a continuation is not read
    with torch.inference_mode():
        scores = model(input_ids=read, use_cache=False).logits.log_softmax(-1)[0]
    expected = float(scores[1, 7] + scores[2, 8])
    [found] = answers(HF(model, tokenizer=words()), [Loglikelihood(text([5, 6]), " " + text([7, 8]))])
    assert isinstance(found, Likelihood)
    assert found.value == pytest.approx(expected, abs=1e-5)


def test_requests_that_a_plan_did_not_declare_fail_with_the_reason() -> None:
    asked = [Loglikelihood("w5 w6", " w7"), Rolling("w5 w6"), Generate("w5", {"until": [], "max_gen_toks": 2})]
    scored, whole, written = answers(HF(made("bert"), tokenizer=words()), asked)
    assert isinstance(scored, Failed) and isinstance(whole, Failed) and isinstance(written, Text)
    assert SEES in scored.reason and SEES in whole.reason


def test_a_bert_that_was_made_a_decoder_is_causal() -> None:
    torch.manual_seed(0)
    model = transformers.BertLMHeadModel(transformers.BertConfig(**SMALL, is_decoder=True)).eval()
    assert HF(model, tokenizer=words()).can.loglikelihood


@pytest.mark.parametrize("name", mostly_nightly(ARCHITECTURES, kept=architectures.SAMPLE))
def test_causal_models_and_encoders_are_not_refused_at_half_precision(name: str) -> None:
    model = HF(architectures.build(name, dtype=torch.bfloat16), tokenizer=architectures.tokenizer(), max_length=64)
    assert model.can.loglikelihood


def other_expert(model: Any, is_one_row: bool) -> None:
    """Move one token's state in the second text as another expert would: in one of three texts, or at half precision alone."""
    passes: list[int] = []

    def move(module: Any, arguments: Any, hidden: Any) -> Any:
        passes.append(1)
        is_moved = len(passes) == 1 if is_one_row else hidden.dtype == torch.bfloat16
        if is_moved and len(hidden) == 2:
            hidden = hidden.clone()
            hidden[1, 3] += 1.0
        return hidden

    model.get_input_embeddings().register_forward_hook(move)


@pytest.mark.parametrize(("dtype", "is_one_row"), [(torch.float32, True), (torch.bfloat16, False)])
def test_another_expert_because_of_rounding_is_not_a_look_at_later_tokens(dtype: torch.dtype, is_one_row: bool) -> None:
    model = build("llama").to(dtype)
    other_expert(model, is_one_row)
    ready = HF(model, tokenizer=words())
    [response] = answers(ready, [Loglikelihood("w5 w6", " w7")])
    assert isinstance(response, Likelihood)


def test_logits_that_are_not_numbers_say_nothing_about_later_tokens() -> None:
    model = build("llama")
    with torch.no_grad():
        model.lm_head.weight[7] = torch.nan
    assert HF(model, tokenizer=words()).can.loglikelihood


def test_loading_costs_no_further_pass_of_a_causal_model() -> None:
    """The trial pass of every model is the one that is looked at."""
    passes: list[tuple[int, ...]] = []
    model = build("llama")
    model.register_forward_pre_hook(
        lambda module, arguments, options: passes.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    HF(model, tokenizer=words(), share_prefixes=False)
    assert passes[0] == (2, 16)
    assert [shape for shape in passes if shape[0] == 2] == passes[:1]
