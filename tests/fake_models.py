"""The model that lm-eval was asked with when the golden expectations were made; golden/FAKE_MODEL.md describes it."""

import re
from hashlib import sha256
from pathlib import Path

from assay.models import Scripted

DESCRIBED = (Path(__file__).parent / "golden/FAKE_MODEL.md").read_text(encoding="utf-8")
TABLES: dict[str, list[str]] = {}
exec(re.search(r"```python\n(NUMS.*?)```", DESCRIBED, re.S).group(1), TABLES)  # type: ignore[union-attr]


def sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def value(digest: str) -> float:
    return -(int(digest[:8], 16) % 100000) / 1000.0 or 0.0


def generate(context: str, _: object, repeat: int) -> str:
    h = sha(f"{context}\0{repeat}")

    def pick(table: str, digits: str) -> str:
        return TABLES[table][int(digits, 16) % len(TABLES[table])]

    number, letter, word = pick("NUMS", h[8:12]), pick("LETTERS", h[12:16]), pick("WORDS", h[16:20])
    echo = " ".join(context.split()[-(4 + int(h[20:24], 16) % 9) :])
    hints = re.findall(r"hint\[([^\]]*)\]", context)
    hint = hints[-1] if hints else letter if int(h[24:26], 16) % 2 else number
    return pick("TEMPLATES", h[:8]).format(N=number, L=letter, W=word, E=echo, H=hint)


def chat_template(messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    text = "".join(f"<|{message['role']}|>\n{message['content']}<|end|>\n" for message in messages)
    return f"{text}<|assistant|>\n" if add_generation_prompt else text.removesuffix("<|end|>\n")


def golden_model() -> Scripted:
    def likelihood(context: str, continuation: str) -> tuple[float, bool]:
        digest = sha(f"{context}\0{continuation}")
        return value(digest), int(digest[-1], 16) % 2 == 0

    return Scripted(generate, likelihood, lambda text: value(sha(text)), chat_template)
