"""Remedies for refusals of servers: what to change, by the status of the answer and the kind of request."""

import re
from collections.abc import Sequence

from assay.errors import some
from assay.records import Generate, Loglikelihood, Request

HTTP = re.compile(r"HTTP (\d{3})")
OTHER_TYPE = {"openai-chat": "openai", "openai": "openai-chat"}
"""The model type for servers that have the other endpoint."""
KEY_STATUSES, PATH_STATUSES = (401, 403), (404, 405, 501)
PROXY_STATUS, TOO_MANY = 407, 429
TOO_LARGE = 413
SMALLER = (
    "raise the limit of the server, or of the proxy before it, for the size of requests, or send less: fewer shots, smaller"
    " media"
)
OF_THE_KEY = re.compile(
    r"no connected db|(invalid|incorrect|missing) api[ _-]?key|api[ _-]?key (is )?(invalid|missing)", re.IGNORECASE
)
"""Words of refusals that mean the key whatever the status: LiteLLM's proxy without a database answers a wrong one with 400."""
NO_CREDIT = re.compile(r"insufficient_quota|billing_hard_limit|credit balance is too low", re.IGNORECASE)
"""Words of refusals that no waiting ends."""
FOR_EVERY_REQUEST = (*KEY_STATUSES, *PATH_STATUSES)
"""Statuses that do not depend on what a request says."""
UNREPORTED = "reports no "
"""Part of failures that are the same for every text."""
OF_A_TEXT = re.compile(r"content.{0,20}(filter|manag)|policy|safety|moderat|flagged", re.IGNORECASE)
"""Words of refusals that are about the text of a request, which others may pass."""
PARAMETERS = re.compile(
    r"\b(stop|seed|tools|tool_choice|response_format|temperature|top_p|top_k|min_p|logprobs|max_tokens"
    r"|max_completion_tokens|presence_penalty|frequency_penalty|repetition_penalty)\b"
)


def is_about_every_text(reason: str, *, is_short: bool) -> bool:
    """Whether a refusal does not depend on the text that was sent: it is about a key, a path, a parameter or a missing feature.
    A limit of tokens may be named where a prompt is too long, unless the prompt `is_short`."""
    named = PARAMETERS.search(reason)
    is_parameter = named is not None and (is_short or not named[0].startswith("max_"))
    is_general = status_of(reason) in FOR_EVERY_REQUEST or is_parameter or UNREPORTED in reason
    return is_general and OF_A_TEXT.search(reason) is None


def status_of(reason: str) -> int | None:
    """The HTTP status that a failure names.

    >>> status_of("HTTP 404: no such model")
    404
    """
    status = HTTP.match(reason)
    return int(status[1]) if status is not None else None


def refusal_remedy(reason: str, backend: str, model: str, place: str, served: Sequence[str] = (), key: str = "") -> str:
    """The remedy for a server that refuses every request; `served` are the names of the models that it lists, `key` is where
    the key comes from."""
    status, other = status_of(reason), OTHER_TYPE.get(backend)
    if status == PROXY_STATUS:
        return "check the name and the password of the proxy, in HTTPS_PROXY or proxy= in the model's arguments"
    if status in KEY_STATUSES or OF_THE_KEY.search(reason):
        return f"check the key{f' ({key})' if key else ''}: api_key=env:NAME in the model's arguments"
    if status == TOO_LARGE:
        return SMALLER
    if status == TOO_MANY or NO_CREDIT.search(reason):
        return "add credit to the account, or give another key: api_key=env:NAME in the model's arguments"
    if status is None:
        return (
            "look at the server's log: a chat template or reasoning parser that does not fit the model may be the cause"
        )
    if "context" in reason or "length" in reason:
        return "start the server with a longer context"
    known = f", which has {some(served)}," if served and model not in served else ","
    check = f"check the name {model!r} at {place}{known} and the key"
    if status in PATH_STATUSES and other is not None and not (model in reason and "model" in reason):
        has = "only chat completions" if other == "openai-chat" else "only completions"
        return f"{check}; if the server has {has}, use --model {other}"
    return check


def busy_remedy(reason: str, option: str) -> str:
    """The remedy for a server that did not answer a minute long."""
    if status_of(reason) is None:
        return f"start the server, or correct base_url in {option}"
    return "the server is there, but not ready: look at its log, or run the same command later"


def served_names(listed: object) -> list[str]:
    """The names of models in a server's list of them.

    >>> served_names({"data": [{"id": "a"}, {"id": None}, 3]}), served_names(None)
    (['a'], [])
    """
    rows = listed.get("data") if isinstance(listed, dict) else None
    names = [row.get("id") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [name for name in names if isinstance(name, str)]


def malformed_remedy(reason: str) -> str:
    """The remedy for a server whose answers are not of the protocol."""
    if "'data:" in reason or "'event:" in reason:
        return "the server only streams: add stream=true to the model's arguments"
    return "check that base_url is the address of an API, such as http://127.0.0.1:8000/v1"


def request_remedy(reason: str, request: Request, task: str, backend: str) -> str:
    """The remedy for a server that answers the greeting, and refuses one kind of request."""
    if not isinstance(request, Generate):
        ways = ["tokenizer=FOLDER"] if "offset" in reason or "tokeniz" in reason else []
        ways += [
            "likelihoods=prompt for vLLM",
            "likelihoods=sglang with tokenizer=FOLDER for SGLang",
            "likelihoods=llamacpp for llama.cpp",
        ]
        fix = f"give {', or '.join(ways)}, in the model's arguments"
        if backend == "openai-chat":
            fix = "start the server so that it reports log-probabilities (top_logprobs), or use --model openai"
        return f"{fix}; or ask for {task}@generate" if isinstance(request, Loglikelihood) else fix
    if status_of(reason) == TOO_LARGE:
        return SMALLER
    refused = PARAMETERS.search(reason)
    if refused is not None and refused[0] == "tools":
        return "start the server so that it calls tools, or use another model"
    if refused is not None and refused[0] == "seed":
        return "leave seed out of the model's arguments"
    if refused is not None and refused[0].startswith("max_"):
        return "give a lower limit, as --gen_kwargs max_gen_toks=…, or a server with a longer context"
    if "image" in reason or "audio" in reason or "multimodal" in reason:
        return "use a model that takes such media, or leave the task out"
    if "system" in reason:
        return "leave out --system_instruction and the task's description, or use another chat template"
    if "context" in reason or "length" in reason:
        return "give a lower limit, as --gen_kwargs max_gen_toks=…, or a server with a longer context"
    return f"change the generation parameters ({', '.join(request.params) or 'none'}) with --gen_kwargs or in the task"
