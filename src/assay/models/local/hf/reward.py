"""Reward models from a folder: transformers' sequence classification."""

from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError, did_you_mean
from assay.models.conversations import sent_messages
from assay.models.local.chat_templates import apply_chat_template
from assay.models.local.hf.loading import dtype_argument, import_libraries
from assay.models.local.loading import fingerprint_folder
from assay.models.protocol import Answered, Can
from assay.records import Failed, Likelihood, Loglikelihood, Message, Request, Usage

if TYPE_CHECKING:
    from transformers import BatchEncoding

DECIMALS = 5
"""Decimals of a reward: the same in every batch."""


class RewardHF:
    """A sequence-classification model from a folder in Hugging Face's layout; the reward is the score of its only label.

    `label` selects one if the model has more.
    """

    name = "reward-hf"
    can = Can(generate=False, loglikelihood=True, rolling=False, chat=False, answer_in_thread=True)
    window = 1024

    def __init__(
        self, path: str, *, batch_size: int = 8, device: str = "cpu", dtype: str = "auto", label: int | str | None = None,
        max_length: int | None = None,
    ) -> None:  # fmt: skip
        self._folder = _folder(path)
        self._torch, transformers = import_libraries("reward-hf")
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._folder)
        loader = transformers.AutoModelForSequenceClassification
        self._model = loader.from_pretrained(self._folder, **{dtype_argument(): dtype}).to(device).eval()
        self._tokenizer.padding_side = "right"  # padding after a text changes nothing, before it may
        # without a padding token texts go one by one: another token in its place would change where a text ends
        self._can_pad = self._tokenizer.pad_token is not None
        if self._can_pad and self._model.config.pad_token_id is None:
            self._model.config.pad_token_id = self._tokenizer.pad_token_id
        self._batch, self._device, self._dtype = batch_size if self._can_pad else 1, device, dtype
        self._label = _label(label, self._model.config.id2label)
        known = (self._tokenizer.model_max_length, getattr(self._model.config, "max_position_embeddings", None))
        self.max_length: int | None = max_length or min((each for each in known if each), default=None)

    @cached_property
    def identity(self) -> str:
        """Digest of the folder's content and the arguments."""
        return f"reward-hf {fingerprint_folder(self._folder)} {self._label} {self._dtype} {self.max_length}"

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
        raise NotImplementedError("reward models render conversations themselves")

    def count_tokens(self, text: str) -> int | None:
        return len(self._tokenizer(text)["input_ids"])

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[Answered]:
        """Yield the rewards batch by batch, the longest first, so that similar lengths share a batch."""
        encoded: list[tuple[int, Any]] = []
        failed: list[tuple[int, Failed]] = []
        for number, request in enumerate(requests):
            if not isinstance(request, Loglikelihood):
                failed.append((number, Failed(f"{self.name} scores answers only")))
                continue
            if self._tokenizer.chat_template is None and not isinstance(request.context, str):
                failed.append((number, Failed(f"{self.name} has no chat template for a conversation")))
                continue
            tokens = self._encoded(request)
            length = len(tokens["input_ids"])
            if self.max_length is not None and length > self.max_length:
                failed.append(
                    (number, Failed(f"{length} tokens exceed the model's context length of {self.max_length}"))
                )
            else:
                encoded.append((number, tokens))
        yield failed
        encoded.sort(key=lambda each: -len(each[1]["input_ids"]))
        for start in range(0, len(encoded), self._batch):
            yield self._rewards(encoded[start : start + self._batch])

    def _encoded(self, request: Loglikelihood) -> "BatchEncoding":
        if self._tokenizer.chat_template is None:
            pair: BatchEncoding = self._tokenizer(request.text, request.continuation)
            return pair
        messages = [*sent_messages(request.context), {"role": "assistant", "content": request.continuation}]
        text = apply_chat_template(self._tokenizer, messages, {})
        encoded: BatchEncoding = self._tokenizer(text, add_special_tokens=False)  # the template has written them
        return encoded

    def _rewards(self, batch: Sequence[tuple[int, "BatchEncoding"]]) -> list[tuple[int, Likelihood]]:
        padded = self._tokenizer.pad([tokens for _, tokens in batch], padding=self._can_pad, return_tensors="pt").to(
            self._device
        )
        with self._torch.inference_mode():
            numbers = self._model(**padded).logits[:, self._label].float().tolist()
        return [
            (number, Likelihood(round(value, DECIMALS), usage=Usage(len(tokens["input_ids"]))))
            for (number, tokens), value in zip(batch, numbers, strict=True)
        ]


def _folder(path: str) -> Path:
    folder = Path(path)
    if not (folder / "config.json").is_file():
        what = f"no model in {path!r}"
        raise ConfigError.at("model_args.path", what, "give a folder with config.json and weights")
    return folder


def _label(label: int | str | None, labels: dict[int, str]) -> int:
    """Return the number of the selected label."""
    names = {name: number for number, name in labels.items()}
    if label is None and len(labels) == 1:
        return 0
    if isinstance(label, int) and label in labels:
        return label
    if label in names:
        return names[str(label)]
    problem = "several labels" if label is None else f"no label {label!r}"
    what = f"the model has {problem}: {', '.join(names)}"
    fix = did_you_mean(str(label), names) if label is not None else "select one with label=…"
    raise ConfigError.at("model_args.label", what, fix)
