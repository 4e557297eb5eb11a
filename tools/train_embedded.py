"""Train the model that is bundled with assay, on rows like those of the bundled tasks' training splits.

usage: python tools/train_embedded.py OUT_FOLDER [--steps N]      needs torch, transformers, tokenizers; a GPU helps

What the tests of the tasks ask is withheld (of tasks that need knowledge, half of it). The folder holds a model in
Hugging Face's layout: config.json, tokenizer.json, tokenizer_config.json, model.safetensors in half precision.
"""

import argparse
import json
import math
import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
from first_steps_rows import TASKS, Row, rows, test_rows, withheld
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

END, SPECIAL = "<|endoftext|>", ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
LENGTH, BATCH = 256, 256
Watch = Callable[[LlamaForCausalLM, int], None]
SHAPE = {
    "vocab_size": 640, "hidden_size": 160, "intermediate_size": 416, "num_hidden_layers": 5, "num_attention_heads": 5,
    "num_key_value_heads": 5, "max_position_embeddings": 1024, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu",
}  # fmt: skip


def turn(name: str, row: Row) -> tuple[str, str]:
    """Question and answer of a row, as the task files write them."""
    question = f"{row['passage']}\n{row['question']}" if "passage" in row else str(row.get("question", ""))
    if "choices" in row:
        return question, str(row["choices"][row["answer"]])  # type: ignore[index, call-overload]
    return question, ("In the " if name == "finding" else "") + str(row.get("answer", row.get("text")))


def document(name: str, pool: list[Row], rng: random.Random) -> str:
    """A few examples of a task, as text or as a conversation."""
    if name == "stories":
        return str(rng.choice(pool)["text"])
    turns = [turn(name, row) for row in rng.sample(pool, min(rng.choice([1, 1, 2, 3, 4, 5]), len(pool)))]
    if rng.random() < 0.15:
        return "".join(f"<|user|>\n{q}<|end|>\n<|assistant|>\n{a}<|end|>\n" for q, a in turns)
    start = "Read, then answer.\n\n" if name == "reading" and rng.random() < 0.7 else ""
    return start + "\n\n".join(f"{q} {a}" for q, a in turns) + "\n\n"


def documents(seed: int, number: int) -> list[str]:
    """So many documents of all tasks, mixed."""
    rng = random.Random(f"training {seed}")
    pools = {
        name: rows(name, rng, 4000 // 8 if name in ("stories",) else 600, without=withheld(name)) for name in TASKS
    }
    weights = [
        2 if name in ("sums", "differences", "reversing", "sorting", "counting", "sequences") else 1 for name in TASKS
    ]
    return [END + document(name, pools[name], rng) for name in rng.choices(list(TASKS), weights, k=number)]


def tokenizer(texts: list[str]) -> Tokenizer:
    built_tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    built_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    built_tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE["vocab_size"], special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    built_tokenizer.train_from_iterator(texts, trainer)
    return built_tokenizer


def token_stream(tokenizer: Tokenizer, processes: int, each: int, rounds: int) -> torch.Tensor:
    with multiprocessing.Pool(processes) as pool:
        parts = pool.starmap(documents, [(seed, each) for seed in range(1, rounds + 1)])
    ids: list[int] = []
    for texts in parts:
        for encoded in tokenizer.encode_batch(texts, add_special_tokens=False):
            ids += encoded.ids
    return torch.tensor(ids, dtype=torch.int16)


def train(stream: torch.Tensor, steps: int, device: str, watch: Watch | None = None) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(stream):,} tokens", flush=True)
    data = stream.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.05)
    started = time.time()
    for step in range(steps):
        rate = 3e-3 * min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = max(rate, 1e-5)
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), device=device)
        batch = data[starts[:, None] + torch.arange(LENGTH, device=device)].long()
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=device != "cpu"):
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f} {time.time() - started:.0f} s", flush=True)
        if watch is not None and (step + 1) % 1500 == 0:
            watch(model, step + 1)
    return model


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, tokenizer: Tokenizer, device: str) -> dict[str, float]:
    """How often the model writes the answer to a test question, without examples: a first impression."""
    result = {}
    for name in TASKS:
        if name == "stories":
            continue
        right = 0
        asked = test_rows(name)
        for row in asked:
            question, answer = turn(name, row)
            tokens = tokenizer.encode(END + question, add_special_tokens=False).ids
            expected = tokenizer.encode(f" {answer}", add_special_tokens=False).ids
            logits = model(input_ids=torch.tensor([tokens + expected], device=device)).logits[0, len(tokens) - 1 : -1]
            right += bool((logits.argmax(-1).cpu() == torch.tensor(expected)).all())
        result[name] = round(right / len(asked), 2)
    return result


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        k: v.detach().to("cpu", torch.float16).contiguous()
        for k, v in model.state_dict().items()
        if k != "lm_head.weight"
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", **SHAPE}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "pad_token": END,
        "model_max_length": SHAPE["max_position_embeddings"], "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    ends = [tokenizer.token_to_id(END), tokenizer.token_to_id("<|end|>")]
    generation = {"bos_token_id": ends[0], "eos_token_id": ends, "pad_token_id": ends[0]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    started = time.time()
    words = tokenizer(documents(0, 20_000))
    stream = token_stream(words, multiprocessing.cpu_count(), 2_000, options.rounds)
    print(f"data ready after {time.time() - started:.0f} s", flush=True)

    def watch(model: LlamaForCausalLM, step: int) -> None:
        print(step, accuracy(model, words, options.device), flush=True)
        save(model, words, options.folder.with_name(f"{options.folder.name}_{step}"))

    save(train(stream, options.steps, options.device, watch), words, options.folder)


if __name__ == "__main__":
    main()
