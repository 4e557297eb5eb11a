"""How the `hf` backend loads its model: folders, arguments under lm-eval's names, templates by name, and what is refused."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import simple_evaluate
from assay.cli import main
from assay.errors import ConfigError
from assay.models.load import load_model
from assay.models.local.embedded import BUNDLED
from assay.models.local.hf.backend import HF
from assay.models.local.hf.loading import HFOptions, fingerprint_ahead
from assay.models.local.loading import default_threads, fingerprint_folder
from assay.records import Generate, Likelihood, Loglikelihood, Message, Text
from hf_world import answers, build, plain_likelihood, words
from small_runs import write_task

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Llama with its tokenizer, as transformers saves it."""
    built = tmp_path / "model"
    build("llama").save_pretrained(built)
    words().save_pretrained(built)
    return built


def refused(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_model("hf", options)
    return str(caught.value)


def test_a_folder_is_a_model(folder: Path) -> None:
    model = load_model("hf", {"pretrained": str(folder)})
    [response] = answers(model, [Loglikelihood("w5 w6", " w7")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(plain_likelihood("llama", [5, 6], [7])[0], abs=1e-4)
    assert model.max_length == 256


@pytest.mark.parametrize("name", ["hf", "hf-auto", "huggingface"])
def test_lm_evals_names_for_it_are_known(name: str) -> None:
    with pytest.raises(ConfigError, match="needs the argument 'pretrained'"):
        load_model(name, {})


def test_a_model_that_cannot_be_loaded_is_a_one_line_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    assert "cannot be loaded" in refused(pretrained=str(tmp_path / "empty"))
    assert "no folder named" in refused(pretrained=str(tmp_path / "nowhere"))
    assert "'someone/something' cannot be loaded" in refused(pretrained="someone/something")
    assert "cannot be loaded" in refused(pretrained=str(folder), tokenizer=str(tmp_path / "empty"))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    assert "cannot be loaded" in refused(pretrained=str(folder))
    (folder / "config.json").write_text("{")
    assert "cannot be loaded" in refused(pretrained=str(folder))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float33"}, "invalid dtype 'float33'"),
        ({"dtype": "int8"}, "invalid dtype 'int8'"),
        ({"device": "abacus"}, "no device named 'abacus'"),
        ({"device": "cuda:99"}, "no device 'cuda:99' on this machine — use cpu"),
        ({"backend": "both"}, "one of 'default', 'causal', 'seq2seq'"),
        ({"pretrainde": "x"}, "did you mean 'pretrained'?"),
        ({"max_length": "long"}, "of type int"),
        ({"over_length": "drop"}, "one of 'error', 'truncate'"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_to_do(options: dict[str, Any], said: str, folder: Path) -> None:
    assert said in refused(pretrained=str(folder), **options)


def test_pickled_weights_are_refused_unless_they_are_trusted(folder: Path, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save(build("llama").state_dict(), pickled / "pytorch_model.bin")
    assert "pickled, and loading them can run code" in refused(pretrained=str(pickled))
    [response] = answers(HF(str(pickled), allow_pickle=True), [Loglikelihood("w5 w6", " w7")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(plain_likelihood("llama", [5, 6], [7])[0], abs=1e-4)


def test_model_code_runs_only_with_trust_remote_code(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    code = f"from transformers import LlamaConfig, LlamaForCausalLM\nopen({str(ran)!r}, 'w').close()\n"
    code += "class Own(LlamaConfig):\n    model_type = 'own'\nclass Model(LlamaForCausalLM):\n    config_class = Own\n"
    (folder / "own.py").write_text(code)
    assert "add trust_remote_code=true if you trust it" in refused(pretrained=str(folder))
    assert not ran.exists()
    HF(str(folder), trust_remote_code=True)
    assert ran.exists()


# lm-eval's arguments


LM_EVAL = [
    "pretrained",
    "backend",
    "revision",
    "subfolder",
    "tokenizer",
    "truncation",
    "logits_cache",
    "max_length",
    "device",
    "dtype",
    "softmax_dtype",
    "mixed_precision_dtype",
    "batch_size",
    "max_batch_size",
    "trust_remote_code",
    "use_fast_tokenizer",
    "add_bos_token",
    "prefix_token_id",
    "parallelize",
    "max_memory_per_gpu",
    "max_cpu_memory",
    "offload_folder",
    "tp_plan",
    "peft",
    "delta",
    "autogptq",
    "gptqmodel",
    "gguf_file",
    "think_end_token",
    "enable_thinking",
    "chat_template_args",
]
"""Every parameter of HFLM.__init__ in lm-eval 0.4.13."""


def test_every_argument_of_lm_evals_works_or_says_why_not(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    from assay.models.load import parameters
    from assay.models.local.hf.backend import IGNORED, UNSUPPORTED

    assert set(LM_EVAL) <= {*parameters(HF), *IGNORED, *UNSUPPORTED}
    assert set(parameters(HF)).isdisjoint({*IGNORED, *UNSUPPORTED})
    with caplog.at_level(logging.WARNING, "assay"):
        load_model(
            "hf", {"pretrained": str(folder), "logits_cache": True, "softmax_dtype": "float32", "truncation": False}
        )
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "logits_cache=True has no effect", "softmax_dtype=float32 has no effect", "truncation=False has no effect"
    ]  # fmt: skip
    for key, instead in UNSUPPORTED.items():
        said = refused(pretrained=str(folder), **{key: "x"})
        assert f"has no argument {key!r}" in said
        assert instead in said


def test_the_flags_of_a_run_reach_the_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.config.run import RunConfig
    from assay.evaluation.models import model_under_test

    config = RunConfig(model="hf", model_args={"pretrained": str(folder)}, batch_size=3, device="cpu")
    model: Any = model_under_test(config)
    assert model._runner.generator._most == 3
    with pytest.raises(ConfigError, match="no device named 'abacus'"):
        model_under_test(RunConfig(model="hf", model_args={"pretrained": str(folder)}, device="abacus"))
    over: Any = model_under_test(
        RunConfig(model="hf", model_args={"pretrained": str(folder), "batch_size": 2}, batch_size=3)
    )
    assert over._runner.generator._most == 2, "what is said of the model itself counts more"


# identity


def test_the_identity_is_the_content_and_not_the_path(folder: Path, tmp_path: Path) -> None:
    first = HF(str(folder)).identity
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    (moved / "optimizer.pt").write_bytes(b"what training goes on from")
    (moved / "README.md").write_text("a model")
    assert HF(str(moved)).identity == first
    assert HF(str(folder), tokenizer=str(folder)).identity == first
    assert HF(str(folder), batch_size=2, share_prefixes=False, threads=1).identity == first, "which change no answer"


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16"}, {"max_length": 32}, {"prefix_token_id": 32}, {"add_bos_token": False},
        {"think_end_token": "w9"}, {"over_length": "truncate"},
    ],
)  # fmt: skip
def test_the_identity_changes_with_what_changes_answers(options: dict[str, Any], folder: Path) -> None:
    items = {HF(str(folder), **each).identity for each in ({}, {"max_length": 33}, options)}
    assert len(items) == 3


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_the_identity_changes_with_every_file_of_a_model(file: str, folder: Path) -> None:
    first = HF(str(folder)).identity
    if file == "model.safetensors":
        build("llama", seed=1).save_pretrained(folder)
    else:
        loaded = json.loads((folder / file).read_text())
        (folder / file).write_text(
            json.dumps(loaded | {"rope_theta": 5000.0} if file == "config.json" else loaded, indent=7)
        )
    assert HF(str(folder)).identity != first


def test_a_model_that_is_handed_over_is_its_weights() -> None:
    first, same, other = (HF(build("llama", seed), tokenizer=words()).identity for seed in (0, 0, 1))
    assert first == same != other


# chat templates


CHAT = "{% for m in messages %}{{ bos_token if loop.first }} w10 {{ m.content }}{% endfor %}{% if add_generation_prompt %} w11{% endif %}"


@cache
def chat_tokenizer(templates: Any = None) -> Any:
    tokenizer = words().__class__(tokenizer_object=words(True).backend_tokenizer, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = dict(templates) if isinstance(templates, tuple) else templates
    return tokenizer


TWO = (("default", CHAT), ("tool_use", CHAT.replace("w10", "w20")))


def chatted(model: Any, name: str | bool, folder: Path, **options: Any) -> Any:
    """What is asked of a model in a chat."""
    write_task(
        folder,
        [{"q": "w5 w6", "gold": "w7"}],
        "doc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: exact_match}]\n",
    )
    results = simple_evaluate(
        model, tasks=["t"], include_path=str(folder), include_defaults=False, apply_chat_template=name,
        gen_kwargs={"max_gen_toks": 2}, **options,
    )  # fmt: skip
    return results["samples"]["t"][0]["arguments"][0][0]


def test_a_template_is_taken_by_its_name(tmp_path: Path) -> None:
    model = HF(build("llama"), tokenizer=chat_tokenizer(TWO))
    assert chatted(model, True, tmp_path) == "<s> w10 w5 w6 w11"
    assert chatted(model, "tool_use", tmp_path) == "<s> w20 w5 w6 w11"


@pytest.mark.parametrize(
    ("templates", "name", "said"),
    [
        (TWO, "tool_yse", "did you mean 'tool_use'?"),
        (CHAT, "tool_use", "its only template has no name"),
        ((*TWO[1:], ("rag", CHAT)), True, "name one: tool_use, rag"),
        (None, True, "chat template"),
        (None, "tool_use", "no chat templates with names"),
    ],
)
def test_a_template_that_is_not_there_is_refused_before_any_request(
    templates: Any, name: str | bool, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        chatted(HF(build("llama"), tokenizer=chat_tokenizer(templates)), name, tmp_path)


def test_a_name_makes_no_sense_to_a_model_with_one_template(tmp_path: Path, run_assay: Run) -> None:
    with pytest.raises(ConfigError, match="model 'embedded' has no chat templates with names"):
        chatted("embedded", "tool_use", tmp_path)


def test_a_name_on_the_command_line_reaches_the_tokenizer(folder: Path, tmp_path: Path, run_assay: Run) -> None:
    chat_tokenizer(TWO).save_pretrained(folder)
    write_task(
        tmp_path / "tasks",
        [{"q": "w5 w6", "gold": "w7"}],
        "doc_to_text: q\ndoc_to_target: gold\nmetric_list: [{metric: exact_match}]\n",
    )
    command = [
        "run",
        "--model",
        "hf",
        "--model_args",
        f"pretrained={folder}",
        "--tasks",
        "t",
        "--include_path",
        tmp_path / "tasks",
    ]
    more = ["--gen_kwargs", "max_gen_toks=2", "--write_out", "--apply_chat_template"]
    ended = run_assay(*command, *more, "tool_use")
    assert ended.returncode == 0, ended.stderr
    assert "<s> w20 w5 w6 w11" in ended.stdout
    ended = run_assay(*command, *more, "tool_yse")
    assert ended.returncode == 2
    assert "did you mean 'tool_use'?" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_word_true_is_not_a_template_name(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--tasks", "first_steps_sums", "--limit", "1", "--apply_chat_template"]
    assert main([*command, "True"]) == 0
    assert main([*command, "Treu"]) == 2
    assert "no chat templates with names" in capsys.readouterr().err


def test_arguments_of_a_template_reach_it() -> None:
    template = CHAT + "{% if enable_thinking is defined %} w{{ 30 if enable_thinking else 31 }}{% endif %}{{ extra }}"
    model = HF(
        build("llama"), tokenizer=chat_tokenizer(template), enable_thinking=False, chat_template_args={"extra": " w40"}
    )
    assert model.chat_template((Message("user", "w5"),), True) == "<s> w10 w5 w11 w31 w40"


# what a model is computed with


def test_a_small_model_has_one_thread_and_a_large_one_those_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr("os.getloadavg", lambda: (3.2, 0.0, 0.0))
    assert (default_threads(1_000_000, 16), default_threads(10**9, 16), default_threads(10**9, 8)) == (1, 12, 8)
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    assert default_threads(10**9, 16) == 1


def test_threads_are_as_wanted_while_the_model_is_asked_and_as_before_afterwards() -> None:
    seen: list[int] = []
    model = build("llama")
    model.register_forward_pre_hook(lambda module, inputs: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    answers(HF(model, tokenizer=words(), threads=2), [Loglikelihood("w5", " w6")])
    assert (set(seen), torch.get_num_threads()) == ({2}, before)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_numbers_give_nearly_the_same(dtype: str) -> None:
    [response, text] = answers(
        HF(str(BUNDLED), dtype=dtype),
        [Loglikelihood("2 + 3 =", " 5"), Generate("2 + 3 =", {"until": ["\n"], "max_gen_toks": 4})],
    )
    [expected] = answers(HF(str(BUNDLED), dtype="float32"), [Loglikelihood("2 + 3 =", " 5")])
    assert isinstance(response, Likelihood)
    assert isinstance(expected, Likelihood)
    assert response.value == pytest.approx(expected.value, abs=0.2)
    assert isinstance(text, Text)


def test_a_digest_that_was_begun_early_is_used_once_and_is_that_of_the_folder(folder: Path) -> None:
    HF.begin_loading(pretrained=str(folder), batch_size=4)
    options = HFOptions(str(folder))
    begun = fingerprint_ahead(options)
    again = fingerprint_ahead(options)
    assert begun is not None and again is not None and begun is not again
    assert next(begun) == next(again) == fingerprint_folder(folder)
    HF.begin_loading(pretrained=str(folder / "missing"))  # reported when it is loaded
    HF.begin_loading()


def test_full_collections_of_garbage_leave_out_the_modules_of_torch_and_transformers() -> None:
    """In a process of its own, since they are imported once."""
    code = (
        "import gc; from assay.models.local.hf.backend import HF; from assay.models.local.embedded import BUNDLED; "
        "HF(str(BUNDLED)); print(gc.get_freeze_count())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert int(ended.stdout) > 100_000
