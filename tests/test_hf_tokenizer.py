"""Texts to tokens under the `hf` backend: lm-eval's rule at the joint, what begins a text there once, and the shortcut for texts
that begin alike, which must change nothing."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from assay.models.local.embedded import BUNDLED
from assay.models.local.hf.backend import HF
from assay.models.local.tokenizer import HFTokenizer
from assay.models.tokenizer import encode_pair
from assay.records import Likelihood, Loglikelihood, Message, Rolling
from hf_world import BEGIN, answers, build, plain_likelihood, words

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
LLAMA_3 = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<s>", "</s>", "[UNK]", "<|im_start|>"]


@cache
def corpus() -> list[str]:
    return [page.read_text() for page in PAGES]


def bpe(splitter: Any, *, begins: bool = False, ends: bool = False, normalizer: Any = None) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, special_tokens=SPECIAL)
    )
    return finished(tokenizer, begins, ends)


def finished(tokenizer: Tokenizer, begins: bool = False, ends: bool = False) -> Any:
    if begins or ends:
        shape = f"{'<s> ' if begins else ''}$A{' </s>' if ends else ''}"
        tokenizer.post_processor = processors.TemplateProcessing(single=shape, special_tokens=[("<s>", 0), ("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", additional_special_tokens=["<|im_start|>"]
    )


def word_pieces() -> Any:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=1500, special_tokens=SPECIAL))
    return finished(tokenizer, begins=True, ends=True)


def byte_level(regex: bool = True) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


def split(pattern: Any) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), byte_level(False)])


MAKERS = {
    "gpt-2": lambda: bpe(byte_level()),
    "llama-3": lambda: bpe(split(LLAMA_3), begins=True),
    "metaspace": lambda: bpe(pre_tokenizers.Metaspace(), begins=True),
    "lower case": lambda: bpe(split(LLAMA_3), normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])),
    "with an end": lambda: bpe(byte_level(), begins=True, ends=True),
    "one word": lambda: bpe(byte_level(False)),
    "digits": lambda: bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()])),
    "word pieces": word_pieces,
    "words": lambda: words(True),
    "bundled": lambda: AutoTokenizer.from_pretrained(BUNDLED),
}  # fmt: skip
SHORTCUT = {"gpt-2", "llama-3", "lower case", "digits", "with an end", "words", "bundled"}


@cache
def tokenizer(kind: str) -> Any:
    return MAKERS[kind]()


ODD = st.sampled_from([
    " ", "  ", "\n", "\n\n", "\t", " \n ", "é", "e\u0301", "日本語", "🙂", "\u00a0", "\u200b", "ﬁ", "İ", "<s>", "</s>", "<|im_start|>",
    "'s", "'S", "12345", "1 2", "a b", "Answer:", "\r\n", "", ".", "w5 w6", "ſ",
])  # fmt: skip


@st.composite
def passages(draw: st.DrawFn, least: int = 0, most: int = 300) -> str:
    """Some of the documents, with odd things in it."""
    page = corpus()[draw(st.integers(0, len(corpus()) - 1))]
    start, size = draw(st.integers(0, len(page))), draw(st.integers(least, most))
    built = page[start : start + size]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(built)))
        built = built[:at] + draw(st.one_of(ODD, st.text(max_size=5))) + built[at:]
    return built


@st.composite
def tasks(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Contexts that begin alike, each with a few continuations, as few-shot tasks have them."""
    heads = [draw(passages(0, 500)) for _ in range(draw(st.integers(1, 2)))]
    contexts = [head + draw(passages(0, 80)) for head in heads for _ in range(draw(st.integers(1, 3)))] + heads[:1]
    return [(context, draw(passages(1, 25)) or "x") for context in contexts for _ in range(draw(st.integers(1, 3)))]


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=25, deadline=None)
@given(items=tasks())
def test_many_texts_at_once_have_the_tokens_they_have_alone(kind: str, items: list[tuple[str, str]]) -> None:
    at_once, alone = HFTokenizer(tokenizer(kind)), HFTokenizer(tokenizer(kind))
    at_once.prime((context for context, _ in items), items)
    for context, continuation in items:
        assert at_once.encode(context) == alone.encode(context)
        assert at_once.pair(context, continuation) == encode_pair(alone.encode, context, continuation, alone.prefix)


def test_the_shortcut_is_taken_where_words_are_split_first_and_nowhere_else() -> None:
    assert {kind for kind in MAKERS if HFTokenizer(tokenizer(kind))._splits_words} == SHORTCUT


@pytest.mark.parametrize("kind", sorted(SHORTCUT - {"with an end"}))
def test_shared_prefixes_are_tokenized_once(kind: str) -> None:
    """Twenty questions behind one long beginning: the tokenizer sees little more than one of them."""
    head = "".join(corpus())[:20_000] + "\n\nThe question is this one and no other, "
    items = [
        (f"{head}{number} and some more words. Answer:", f" {choice}") for number in range(20) for choice in "ABCD"
    ]
    built_tokenizer = HFTokenizer(tokenizer(kind))
    seen: list[int] = []
    encoded = built_tokenizer._encoded

    def counted(texts: Any, special: bool) -> list[list[int]]:
        seen.extend(map(len, texts))
        return encoded(texts, special)

    built_tokenizer._encoded = counted  # type: ignore[method-assign]
    built_tokenizer.prime((), items)
    assert sum(seen) < 2.5 * len(head), f"{sum(seen)} letters instead of {sum(map(len, map(''.join, items)))}"


# what begins a text


def counted_begin(kind: str, **options: Any) -> Any:
    return HFTokenizer(tokenizer(kind), **options)


@pytest.mark.parametrize("predicted", [{}, {"add_bos": True}, {"add_bos": False}])
@pytest.mark.parametrize("text", ["One fish", "<s>One fish", "<s> One fish", ""])
@pytest.mark.parametrize("kind", ["llama-3", "metaspace", "gpt-2"])
def test_the_bos_token_occurs_at_most_once_and_first(kind: str, text: str, predicted: dict[str, Any]) -> None:
    tokens = counted_begin(kind, **predicted).encode(text)
    adds = kind != "gpt-2" and predicted.get("add_bos") is not False
    assert tokens.count(0) == (1 if text.startswith("<s>") or adds else 0)
    assert 0 not in tokens[1:]


@pytest.mark.parametrize("add_bos", [None, True, False])
@pytest.mark.parametrize("kind", ["llama-3", "gpt-2"])
def test_a_text_without_context_is_scored_after_one_bos_token(kind: str, add_bos: bool | None) -> None:
    built = counted_begin(kind, add_bos=add_bos)
    bare = built.encode_bare("One fish")
    assert built.pair("", "One fish") == ([0], bare)
    assert built.pair("<s>", "One fish") == ([0], bare)
    assert built.pair("", "<s>One fish") == ([0], bare)
    assert counted_begin(kind, add_bos=add_bos, prefix_token=7).pair("", "One fish")[0][-1:] in ([7], [0])


@pytest.mark.parametrize("begins", [False, True])
def test_a_custom_prefix_token_replaces_an_empty_context(begins: bool) -> None:
    model = HF(build("llama"), tokenizer=words(), prefix_token_id=9)
    responses = answers(model, [Loglikelihood("", "w5 w6"), Rolling("w5 w6")])
    expected = plain_likelihood("llama", [9], [5, 6])[0]
    assert [each.value for each in responses] == pytest.approx([expected] * 2, abs=2e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["w5 w6", "<s> w5 w6"])
@pytest.mark.parametrize("add_bos", [None, True, False])
@pytest.mark.parametrize("begins", [False, True])
def test_a_whole_text_follows_exactly_one_bos_token(begins: bool, add_bos: bool | None, text: str) -> None:
    """lm-eval has two where the tokenizer adds one."""
    [response] = answers(HF(build("llama"), tokenizer=words(begins), add_bos_token=add_bos), [Rolling(text)])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(plain_likelihood("llama", [BEGIN], [5, 6])[0], abs=2e-4)


def test_a_template_that_writes_what_begins_a_text_gets_no_second_one() -> None:
    tokenizer = words().__class__(tokenizer_object=words(True).backend_tokenizer, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %} {{ m.content }}{% endfor %}"
    model = HF(build("llama"), tokenizer=tokenizer)
    prompt = model.chat_template((Message("user", "w5 w6"),), True)
    [response] = answers(model, [Loglikelihood(prompt, " w7")])
    assert isinstance(response, Likelihood)
    assert response.value == pytest.approx(plain_likelihood("llama", [BEGIN, 5, 6], [7])[0], abs=1e-4)


def test_a_system_message_that_a_template_refuses_is_left_out_as_by_lm_eval() -> None:
    tokenizer = words().__class__(tokenizer_object=words(True).backend_tokenizer, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"
    model = HF(build("llama"), tokenizer=tokenizer)
    assert model.chat_template((Message("system", "w3"), Message("user", "w5")), True) == "w5"


MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}"
    "{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for m in rest %}"
    "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}"
    "{%- if m.role == 'user' %}{{- '[INST] ' }}{%- if loop.last and system is defined %}{{- system + '\\n' }}{%- endif %}"
    "{{- m.content + ' [/INST]' }}{%- else %}{%- generation %}{{- ' ' + m.content | trim + eos_token }}{%- endgeneration %}{%- endif %}"
    "{%- if m.tools %}{{ m.tools | tojson }}{%- break %}{%- endif %}{%- endfor %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def with_template(text: str) -> PreTrainedTokenizerFast:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=words(True).backend_tokenizer, chat_template=text, **special)


@pytest.mark.parametrize("template", [MISTRAL, CHATML], ids=["in a process", "here"])
@pytest.mark.parametrize("roles", ["user", "system user", "user assistant", "user assistant user"])
def test_conversations_are_rendered_as_by_transformers(template: str, roles: str) -> None:
    tokenizer = with_template(template)
    messages = tuple(Message(role, f" w{number} <é> ") for number, role in enumerate(roles.split()))
    opens = not roles.endswith("assistant")
    more = {"add_generation_prompt": True} if opens else {"continue_final_message": True}
    plain = [{"role": message.role, "content": message.content} for message in messages]
    expected = tokenizer.apply_chat_template(plain, tokenize=False, **more)
    assert HFTokenizer(tokenizer).chat_template(messages, opens, None) == expected


@pytest.mark.parametrize(
    "text", ["{{ 'x' * 10**10 }}", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"]
)
def test_a_chat_template_of_a_model_cannot_take_all_time_or_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.models.local.chat_templates.TIME_LIMIT", 1.0)
    tokenizer = with_template(text)
    with pytest.raises(
        (MemoryError, TimeoutError), match=r"the chat template (takes more than 512 MB|took more than 1 s)"
    ):
        HFTokenizer(tokenizer).chat_template((Message("user", "w5"),), True, None)


def test_a_tokenizer_with_a_method_of_its_own_renders_by_that() -> None:
    class Own(PreTrainedTokenizerFast):
        def apply_chat_template(self, conversation: Any, **_: Any) -> str:  # type: ignore[override]
            return f"own {conversation[0]['content']}"

    made = Own(tokenizer_object=words(True).backend_tokenizer, chat_template=MISTRAL)
    assert HFTokenizer(made).chat_template((Message("user", "w5"),), True, None) == "own w5"


def test_a_slow_tokenizer_gives_what_a_fast_one_gives() -> None:
    class Slow:
        """The same tokenizer without what makes it fast."""

        is_fast = False

        def __getattr__(self, name: str) -> Any:
            return getattr(words(True), name)

    pairs = [("w5 w6 ", "w7"), ("", "w7 w8"), ("w5", " w9 w10")]
    slow, fast = HFTokenizer(Slow()), HFTokenizer(words(True))
    for built in (slow, fast):
        built.prime((), pairs)
    assert [slow.pair(*each) for each in pairs] == [fast.pair(*each) for each in pairs]
    assert slow.decode([0, 5, 6]) == fast.decode([0, 5, 6])


def test_tokens_are_counted_with_those_that_begin() -> None:
    assert HF(build("llama"), tokenizer=words(True)).count_tokens("w5 w6") == 3
    assert torch.get_num_threads() == 1
