"""Log-probabilities in the answers of servers, checked: what cannot be one fails its document and is never a number."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.models.servers.http import Refused
from assay.models.servers.usage import usage, usage_of
from assay.records import Likelihood, Response

ROUNDING = 1e-3
"""So far above 0 a log-probability may be by rounding."""
LOST = "\ufffd"
"""What stands in a text for bytes that are no character of their own."""
SPACES = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n", "\u0109": "\t"})
LONGEST_TOKEN = 32
ANOTHER_TOKENIZER = "the server tells of other tokens than were sent: is it the tokenizer of this model?"


def checked(value: Any) -> float:
    """A log-probability: a number, at most 0 but for rounding. Minus infinity is one: the token is impossible."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= ROUNDING:
        raise Refused(f"the server reports the log-probability {value!r:.40}: it must be a number that is at most 0")
    return float(value)


def logprobs_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The log-probabilities of an answer, all of whose lists are equally long."""
    found = answer["choices"][0].get("logprobs")
    if not isinstance(found, Mapping) or not isinstance(found.get("token_logprobs"), list):
        raise Refused("the server reports no log-probabilities (logprobs, token_logprobs)")
    names = ("token_logprobs", "top_logprobs", "tokens", "text_offset")
    lengths = {name: len(found[name]) for name in names if isinstance(found.get(name), list)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise Refused(f"the server reports lists of different lengths: {told}")
    return found


def summed(answer: Mapping[str, Any], found: Mapping[str, Any], start: int, end: int) -> Response:
    """The log-likelihood of some tokens; greedy where each of them was the likeliest."""
    tops = found.get("top_logprobs")
    if not isinstance(tops, list) or not all(isinstance(top, Mapping) and top for top in tops[start:end]):
        raise Refused("the server does not report which tokens were likeliest (top_logprobs)")
    values = [checked(value) for value in found["token_logprobs"][start:end]]
    greedy = all(value >= _largest(top.values()) for value, top in zip(values, tops[start:end], strict=True))
    return Likelihood(float(sum(values)), greedy, usage_of(answer))


def likeliest(answer: Mapping[str, Any]) -> dict[str, float]:
    """The log-probabilities of the likeliest next tokens, by their text."""
    found = answer["choices"][0].get("logprobs")
    if not isinstance(found, Mapping):
        raise Refused("the server reports no log-probabilities (logprobs)")
    if "content" in found:
        return {_text(each["token"]): checked(each["logprob"]) for each in found["content"][0]["top_logprobs"]}
    return {_text(text): checked(value) for text, value in found["top_logprobs"][0].items()}


def of_prompt(answer: Mapping[str, Any], tokens: Sequence[int], start: int) -> Likelihood:
    """The log-likelihood from vLLM's list: for each position the token that stands there, and the likeliest one."""
    found = answer["choices"][0].get("prompt_logprobs")
    if not isinstance(found, list):
        raise Refused("the server reports no log-probabilities of prompts (prompt_logprobs)")
    if len(found) != len(tokens):
        raise Refused(miscounted(len(found), len(tokens)))
    total, greedy = 0.0, True
    for at in range(start, len(tokens)):
        entries = found[at]
        if not isinstance(entries, Mapping) or str(tokens[at]) not in entries:
            raise Refused(ANOTHER_TOKENIZER)
        entry = entries[str(tokens[at])]
        value = _listed(entry)
        rank = entry.get("rank") if isinstance(entry, Mapping) else None
        is_first = rank == 1 if rank is not None else value >= max(_listed(each) for each in entries.values())
        total, greedy = total + value, greedy and is_first
    return Likelihood(total, greedy, usage_of(answer))


def miscounted(reported: int, sent: int) -> str:
    """The message about an answer for more or fewer tokens than were sent."""
    return f"the server tells of {reported} tokens, and {sent} were sent: is it the tokenizer of this model?"


def of_generate(answer: Mapping[str, Any], wanted: Sequence[int]) -> Response:
    """The same from SGLang's list: the last tokens of the prompt, each with its log-probability and number."""
    told = answer["meta_info"]
    lists = [told[key] for key in ("input_token_logprobs", "input_top_logprobs")]
    if not all(isinstance(each, list) and len(each) >= len(wanted) for each in lists) or len(lists[0]) != len(lists[1]):
        raise Refused(ANOTHER_TOKENIZER)
    tokens, tops = (each[len(each) - len(wanted) :] for each in lists)
    if not all(each[1] in (token, 0) for each, token in zip(tokens, wanted, strict=True)):  # 0: of the very last one
        raise Refused(ANOTHER_TOKENIZER)
    if not all(isinstance(top, list) and top for top in tops):
        raise Refused("the server does not report which tokens were likeliest (input_top_logprobs)")
    values = [checked(each[0]) for each in tokens]
    greedy = all(value >= _largest(each[0] for each in top) for value, top in zip(values, tops, strict=True))
    used = usage(told.get("prompt_tokens"), told.get("completion_tokens"), told.get("cached_tokens"))
    return Likelihood(float(sum(values)), greedy, used)


def offsets_of(found: Mapping[str, Any]) -> Sequence[int] | None:
    """Where in the text each token begins; None where the server does not say, or, as SGLang, puts -1 for all of them."""
    offsets = found.get("text_offset")
    if not isinstance(offsets, list):
        return None
    if not all(isinstance(offset, int) and not isinstance(offset, bool) for offset in offsets):
        raise Refused("the server reports places of tokens that are no whole numbers (text_offset)")
    return None if any(offset < 0 for offset in offsets) else offsets


def refuse_part(found: Mapping[str, Any], offsets: Sequence[int], text: str) -> None:
    """Refuse log-probabilities that end before the text does: no token begins behind it, and the last one ends within."""
    tokens = found.get("tokens")
    if not offsets or offsets[-1] >= len(text) or not isinstance(tokens, list) or not isinstance(tokens[-1], str):
        return
    if text.isascii() and offsets[-1] + len(tokens[-1]) < len(text.rstrip()):
        raise Refused("the server reports log-probabilities of a part of the text only")


def refuse_other_text(answer: Mapping[str, Any], found: Mapping[str, Any], sent: str, *, is_exact: bool) -> None:
    """Refuse an answer about another text than was sent: `text` and `tokens` say which one it is about.

    White space may differ, and what a tokenizer makes of half a character. Where tokens were sent (`is_exact` is false),
    special tokens may be missing, and how a server spells single tokens is its own affair.
    """
    echoed, spelled = answer["choices"][0].get("text") or "", _spelled(found.get("tokens"))
    if not isinstance(echoed, str):
        raise Refused(f"the text of an answer must be text, got {type(echoed).__name__}")
    if echoed.startswith(sent) or not (echoed or (spelled and is_exact)):
        return
    if any(text and _is_same(sent, text, is_exact=is_exact) for text in (echoed, spelled)):
        return
    is_last = bool(spelled) and not is_exact and echoed.strip() == str(found["tokens"][-1]).strip()
    is_short = not spelled and len(echoed) < min(LONGEST_TOKEN, len(sent) / 2)
    if not is_last and not is_short:  # else it is the one token that was generated
        raise Refused(f"the server echoes another text than was sent: {(echoed or spelled)[:60]!r}")


def _spelled(tokens: Any) -> str:
    """The text that tokens make, with white space for the signs that tokenizers have for it; empty where they are numbers."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return ""
    return "" if tokens and tokens[-1].startswith("token_id:") else "".join(tokens).translate(SPACES)


def _is_same(sent: str, text: str, *, is_exact: bool) -> bool:
    ours, theirs = ("".join(each.replace(LOST, "").split()) for each in (sent, text))
    if not theirs or ours in theirs:
        return True
    return (not is_exact or LOST in text) and _shared(ours, theirs) >= 0.5


def _shared(ours: str, theirs: str) -> float:
    """The share of pieces of the shorter text that the other one has."""
    ours, theirs = (re.sub(r"\W+", "", text.casefold()) or text for text in (ours, theirs))
    size = 5 if min(len(ours), len(theirs)) >= 40 else min(2, len(ours), len(theirs))
    one, other = ({text[at : at + size] for at in range(len(text) - size + 1)} for text in (ours, theirs))
    return len(one & other) / min(len(one), len(other))


def _largest(values: Any) -> float:
    return max(checked(value) for value in values)


def _listed(entry: Any) -> float:
    return checked(entry.get("logprob") if isinstance(entry, Mapping) else entry)


def _text(token: Any) -> str:
    if not isinstance(token, str):
        raise Refused(f"the server reports the token {token!r:.40}: it must be text")
    return token
