"""Secrets: keys, passwords and headers reach the libraries that need them, and nothing that is written or shown.

Where secrets come in, and what protects each:

1. **Settings**: the options of a run (command line, configuration file, Python), the YAML of tasks, groups, graphs and models,
   and arguments written as `k=v` or JSON. Their decoders (`config.fields`, `config.arguments`) call `seal`: a value that has the
   name of a secret, is below headers or `env`, or is an address with a password or a query becomes a `Secret`. It is a text that
   libraries take as any other; its `repr` hides it, and with it tracebacks, records and messages with `!r`.
2. **Variables of the environment** whose names end in KEY, TOKEN, …; keys of servers from variables and files.
3. **Texts of others**: messages of exceptions, logs of processes, refusals of servers, settings that other programs wrote down.

Where they could come out, and what hides them:

- *Settings in JSON*: `runs.folder` redacts what it writes to manifest.json and results.json, and what it reads from them, so that
  whoever opens a run has no secret of it, even if another program made it. `runs.results.plain` does the same for settings that go
  elsewhere: results that Python returns, labels, trackers. All go by type and by name: a Secret is hidden under any name, and
  what lost its type by its name.
- *Texts*: `user_code.explain` makes reasons of exceptions, and `redact_text` is the net in it: it replaces the values that this
  process knows (Secrets, variables of the environment), also quoted, percent- and base64-encoded, and what looks like a secret.
  `conceal` is the part that goes by values; errors on the terminal pass through it. The client of a server does that with the
  secrets of its connection, however short (`models.servers.secrets`).
- *Requests*: `written_arguments`, for journals and samples. *Commands*: `redact_command`.

A secret can be found by its name or its value only: one in the middle of a prompt is sent and stored as text.
A Secret is compared, hashed and encoded as its text: nothing that identifies a model or task uses its `repr`; see `reveal`.
"""

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import is_
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from assay.records import AnyJSON, Generate, JSONDict, JSONObject, Request, arguments

T = TypeVar("T")
HIDDEN = "***"
_SURE = (
    r"(?:(?:api|access|secret|private|account|auth|subscription|license)[_-]?key|secret|passw(?:or)?d|passphrase|(?:user|db|login|proxy)[_-]?pass|pwd"
    r"|auth(?:orization|[_-]?token)?|credentials?|bearer|sas|sig|jwt|webhook(?:[_-]?url)?|connection[_-]?string|access[_-]?key[_-]?id)"
)
_WORD = rf"(?:{_SURE}|key|token)"
_CAMEL = r"[A-Za-z0-9]*[a-z0-9](?-i:Key|Token|Secret|Password|Passphrase|Credential|Auth)"
_NAME = re.compile(rf"(?:(?:.*[_\-.])?{_WORD}|{_CAMEL})s?", re.IGNORECASE)
_CERTAIN = re.compile(rf"(?:(?:.*[_\-.])?{_SURE}|{_CAMEL}(?<!Key))s?", re.IGNORECASE)
"""Names of secrets even where the value is a number; a `key` or `token` may be an index."""
_PAIR = re.compile(
    rf"(?:^|(?<=[\s,;&?{{(\[\"']))-{{0,2}}((?:[\w.\-]*[_\-.])?{_WORD}s?|{_CAMEL}s?)"
    r"\\*[\"']?\s*[=:]>?\s*(?:(?:bearer|basic|token|digest)\s+)?",
    re.IGNORECASE,
)
_CUT = re.compile(rf"(?:^|[\s,;{{(\[\"'])(?:[\w.\-]*[_\-.])?{_SURE}s?\\*[\"']?\s*[=:]$", re.IGNORECASE)
"""A word of a command that ends where its secret begins: the next word is that."""
_NUMBER = re.compile(r"[+\-]?\d+(?:\.\d+)?(?=$|[\s,;&})\]\"'])")
_NEXT = re.compile(r"[,\s]+(?:\\*[\"']?[A-Za-z_][\w.\-]*\\*[\"']?\s*[=:]|$)")
"""The text after a value on a command line: the next name, or nothing."""
_ESCAPED_QUOTE = re.compile(r"\\+[\"']")
_HEADERS = re.compile(r"(?:^|[_\-.\s])(?:headers?|cookies?)$|[a-z](?:Headers?|Cookies?)$", re.IGNORECASE)
"""Names below which every value is a secret: a key may be sent in a header of any name."""
_HEADERS_IN_TEXT = re.compile(
    r"(?:(?:^|[\s,;&?{(\[\"'_\-.])(?:headers?|cookies?)|[a-z](?-i:Headers?|Cookies?))\\?[\"']?\s*[=:]\s*", re.IGNORECASE
)
_FLAG = re.compile(r"(?<!\S)(--?([A-Za-z][\w.\-]*)\s+)(\"[^\"]*\"|'[^']*'|[^\s\-]\S*)")
"""A flag and its value inside of a text that holds a command."""
_URL = re.compile(r"([A-Za-z][\w+.\-]*://)((?<=[\"']http://)[^\s\"']*|(?<=[\"']https://)[^\s\"']*|[^\s,\"'<>]*)")
"""An address: one in quotes ends there, one without at a comma, too."""
_ADDRESSES = ("url", "base_url", "api_base", "endpoint", "uri", "proxy")
_ARGUMENTS = frozenset((
    "judge_model", "roles", "model", "model_args", "model_role", "data_files", "data_file", "dataset_path", "file_path",
    "storage_options", "proxies", "gen_kwargs", "metadata", "serve",
))  # fmt: skip
"""Keys of task files whose texts are arguments of models, or addresses: prompts elsewhere may mention keys."""
_PROMPTS = ("system_instruction",)
"""Options whose texts are prompts."""
_DOCUMENTS = ("samples",)
"""Keys of lists of documents, whose columns may be called anything."""
_ENV, _HEADER = "env", "header"
_PASSWORD = re.compile(r"(?<=://)[^\s/@:\"'<>]*:[^\s/@\"'<>]+@")
_PAIRS = {"{": "}", "[": "]", "(": ")"}
_CLOSING, _QUOTES = "}])", ("'", '"')
_KNOWN = re.compile(r"\b(?!hf_hub_log_args\b)(?:sk|hf|ghp|gho|xox[abp])[-_][A-Za-z0-9_\-]{8,}")
_BEARER = re.compile(r"(Bearer\s+)\S+", re.IGNORECASE)

_HARMLESS = re.compile(
    r"(?:think_start|think_end|add_bos|eot|bos|eos|pad)_token"
    r"|(?:golden|predicted|input|output|primary|join|sort|group|id|text|answer|question|label|target|column)(?:_\w+)?_keys?"
)
"""Arguments of models and keys of graphs that only sound like a secret."""
ENVIRONMENT = re.compile(r"(?:KEY|TOKEN|SECRET|PASSW(?:OR)?D|CREDENTIALS?)S?$", re.IGNORECASE)
"""Variables of the environment whose values are secrets."""
LEAST = 8
"""Minimum length of a value that is searched for: a shorter one occurs anywhere."""


@lru_cache(4096)
def is_secret(name: str, *, certain: bool = False) -> bool:
    """Whether a key names a secret; `certain`: whatever its value is.

    >>> [is_secret(name) for name in ("api_key", "accessToken", "max_tokens", "monkey", "eos_token")]
    [True, True, True, False, False]
    >>> is_secret("max_tokens", certain=True)
    False
    """
    return (_CERTAIN if certain else _NAME).fullmatch(name) is not None and _HARMLESS.fullmatch(name) is None


class Secret(str):
    """A text that is secret, or has a secret in it. Libraries take it as the text that it is; `repr` prints what may be `shown`.

    >>> key = Secret("abc123")
    >>> f"Bearer {key}", [key], {"header": key}
    ('Bearer abc123', ['***'], {'header': '***'})
    """

    __slots__ = ("shown",)
    shown: str

    def __new__(cls, text: str, shown: str = HIDDEN) -> "Secret":
        secret = super().__new__(cls, text)
        secret.shown = shown
        _values.update(value for value in _values_in(text, shown) if len(value) >= LEAST)
        return secret

    def __repr__(self) -> str:
        return repr(self.shown)

    def __reduce__(self) -> tuple[type["Secret"], tuple[str, str]]:
        return Secret, (str(self), self.shown)


class SecretNumber(int):
    """A number that is secret: a password of digits that YAML did not read as text."""

    shown = HIDDEN

    def __repr__(self) -> str:
        return HIDDEN


_NOT_A_WORD = re.compile(r"[^A-Za-z_]")
"""What a key has, and a name does not: the column of a metric's `key: reference_answer` is not searched for."""
_values: set[str] = set()
"""The values that this process was given as Secrets: they are searched for in texts of others."""


def _values_in(text: str, shown: str) -> Iterator[str]:
    """The secret values in a text: all of it, or password and query of an address."""
    if shown == HIDDEN and _NOT_A_WORD.search(text):
        yield text
    elif "://" in text:
        with suppress(ValueError):  # an invalid address
            parts = urlsplit(text)
            yield from (parts.password or "", unquote(parts.password or ""))
            yield from (pair.partition("=")[2] for pair in parts.query.split("&"))


def environment_secrets() -> dict[str, str]:
    """The names of variables of the environment by their secret values."""
    variables = {name: value for name, value in os.environ.items() if len(value) >= LEAST and ENVIRONMENT.search(name)}
    return {value: name for name, value in variables.items()}


def forms_of(values: Collection[str]) -> list[str]:
    """Return the forms in which others may repeat secret values, longest first: as in an address, in base64, and quoted.

    >>> {"a/b", "a%2Fb", "YS9i", "a/b"} <= set(forms_of(["a/b"]))
    True
    """
    forms = {*values}
    for value in values:
        data = value.encode("utf-8", "surrogateescape")
        forms |= {quote(data, safe=""), quote(data), b64encode(data).decode(), urlsafe_b64encode(data).decode()}
    for _ in range(2):  # a server may quote the request as JSON, within a text that is quoted again
        for form in [*forms]:
            forms |= {json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1], repr(form)[1:-1]}
    return sorted(forms, key=lambda form: (-len(form), form))


_forms_of = lru_cache(4)(forms_of)


def conceal(text: str) -> str:
    """A text without the values that this process knows to be secret, in whatever form."""
    for form in _forms_of(frozenset((*environment_secrets(), *_values))):
        text = text.replace(form, HIDDEN)
    return text


def without_queries(text: str) -> str:
    """A message of other people's code without users, passwords and queries of addresses.

    >>> without_queries("401 for url: https://me:pw@host/v1?key=abc")
    '401 for url: https://***@host/v1?***'
    """
    return _URL.sub(lambda match: match[1] + _bare_address(match[2]), text) if "://" in text else text


def redact_text(text: str) -> str:
    """A text of others without the secrets of this process, and without what looks like one: keys, headers, passwords and queries
    of addresses, and what has the name of a secret.

    >>> redact_text("model=x,api_key=abc123,base_url=http://me:pw@host/v1?sig=abc,header={'X-Tenant': 'abc'},n=1")
    'model=x,api_key=***,base_url=http://***@host/v1?***,header=***,n=1'
    """
    return _redact_text(conceal(text))[0]


def _redact_text(text: str, *, command: bool = False) -> tuple[str, str]:
    """Redact a text; returns also the quote or bracket that would end a secret left open."""
    text, open_headers = _without_headers(text)
    text = without_queries(text)
    text, open_pair = _without_values(text, command)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    text = _FLAG.sub(_without_value, text) if "-" in text else text
    return _KNOWN.sub(HIDDEN, text), open_headers or open_pair


def _without_value(match: re.Match[str]) -> str:
    """A flag of a command without its value, where that is a secret."""
    is_number = _NUMBER.fullmatch(match[3]) is not None
    return match[1] + HIDDEN if is_secret(match[2], certain=is_number) else match[0]


def _without_headers(text: str) -> tuple[str, str]:
    """Replace the values of headers by `***`; returns also the quote or bracket that would end one left open."""
    done, at, missing = "", 0, ""
    while (match := _HEADERS_IN_TEXT.search(text, at)) is not None:
        end, is_open = _end_of_value(text, match.end())
        first = text[match.end() : match.end() + 1]
        missing = "" if not is_open else first if first in _QUOTES else _CLOSING
        done += text[at : match.end()] + HIDDEN
        at = end
    return done + text[at:], missing


def _without_values(text: str, command: bool) -> tuple[str, str]:
    """A text with `***` for every value with the name of a secret, and what would end the one that has no end in it."""
    done, at, missing, around = "", 0, "", list[str]()
    while (match := _PAIR.search(text, at)) is not None:
        start = match.end()
        _enter(text[at:start], around)
        if not _is_hidden(match[1], text, start):
            done, at = done + text[at:start], start
            continue
        end, missing = _end_of_argument(text, start, around[-1] if around else "", command)
        quote = _ESCAPED_QUOTE.match(text, start)
        mark = quote[0] if quote is not None else text[start : start + 1]
        is_quoted = mark[-1:] in _QUOTES and end - start >= 2 * len(mark) and text.endswith(mark, start, end)
        done += text[at:start] + (f"{mark}{HIDDEN}{mark}" if is_quoted else HIDDEN) * (end > start)
        at = end
    return done + text[at:], missing


def _is_hidden(name: str, text: str, start: int) -> bool:
    """Whether the value that begins there is a secret: not in `max_tokens=256`, `until=['key:']`, `turn-key:7b`."""
    is_quote = text[start : start + 1] in _QUOTES
    if is_quote and (start + 1 == len(text) or text[start + 1] in ",]})"):
        return False
    is_word = text[start - 1] == ":" and not is_quote
    return is_secret(name, certain=is_word or _NUMBER.match(text, start) is not None)


def _enter(text: str, waiting: list[str]) -> None:
    """Track open quotes and brackets in `waiting`. An apostrophe within a word is not a quote."""
    before = " "
    for letter in text:
        if waiting and letter == waiting[-1]:
            waiting.pop()
        elif waiting and waiting[-1] in _QUOTES:
            pass
        elif letter in _PAIRS:
            waiting.append(_PAIRS[letter])
        elif letter in _QUOTES and (before.isspace() or before in ",=:{[("):
            waiting.append(letter)
        before = letter


def _end_of_argument(text: str, start: int, around: str, command: bool) -> tuple[int, str]:
    """Where a value ends that begins there, as `config.arguments` reads it: at a comma or blank outside quotes and brackets.

    `around` is what ends the text it is in, if that is quoted or in brackets. The second is what would end it, where
    nothing does.
    """
    if (escaped := _ESCAPED_QUOTE.match(text, start)) is not None:
        end = text.find(escaped[0], escaped.end())
        return (end + len(escaped[0]), "") if end >= 0 else (len(text), escaped[0][-1])
    at, depth = start, 0
    while at < len(text):
        letter = text[at]
        if letter in _QUOTES and (letter != around or at == start):
            at, is_open = _end_of_value(text, at)
            if is_open:
                return at, letter
            continue
        if letter == around and (depth <= 0 or letter in _QUOTES):
            return at, ""
        if depth == 0 and (letter == "," or letter.isspace()) and (not command or _NEXT.match(text, at)):
            return at, ""
        depth += (letter in _PAIRS) - (letter in _CLOSING)
        at += 1
    return at, _CLOSING if depth > 0 else ""


def _end_of_value(text: str, start: int) -> tuple[int, bool]:
    """Where a value ends that begins there: with its bracket, its quote, or at a comma or the line's end; whether it has none."""
    first = text[start : start + 1]
    if first not in ("{", "[", "(", '"', "'"):
        match = re.compile(r"[,\n]").search(text, start)
        return (match.start() if match is not None else len(text)), False
    waiting: list[str] = []
    at = start
    while at < len(text):
        letter = text[at]
        is_quoted = bool(waiting) and waiting[-1] in "\"'"
        if letter == "\\":
            at += 1
        elif waiting and letter == waiting[-1]:
            waiting.pop()
        elif letter in "\"'" and not is_quoted:
            waiting.append(letter)
        elif letter in _PAIRS and not is_quoted:
            waiting.append(_PAIRS[letter])
        at += 1
        if not waiting:
            return at, False
    return len(text), True


def _bare_address(rest: str) -> str:
    """Return the text after `://` of an address without user, password and query."""
    before, mark, _ = re.split(r"([?#])", rest, maxsplit=1) if re.search(r"[?#]", rest) else (rest, "", "")
    host, slash, path = before.partition("/")
    user, at, host = host.rpartition("@")
    named = re.fullmatch(r"(\[[0-9A-Fa-f:.%]*\]|[^:]*)(:\d*)?", host)
    if named is None:  # a password with `/` or `?` in it, as it may not be
        return HIDDEN
    return f"{HIDDEN + at if user else ''}{host}{slash}{path}{'?' + HIDDEN if mark else ''}"


def redact(value: AnyJSON, name: str = "", *, texts: bool = True) -> AnyJSON:
    """Redact settings; `name` is the key of the value. Without `texts`, only keys decide: a prompt may mention keys."""
    is_usual = _is_usual(name)
    if type(value) in _NEVER_SECRET or (is_usual and type(value) is str and not texts and "://" not in value):
        return value
    if is_usual:
        pass
    elif (is_header(name) and not isinstance(value, bool | int | float | None)) or _is_environment(name, value):
        return {str(key): HIDDEN for key in value} if isinstance(value, Mapping) else HIDDEN
    elif is_secret(name, certain=_is_numbers(value)) and (not _is_numbers(value) or _is_long(value)):
        return HIDDEN
    texts = (texts and name not in _PROMPTS) or name in _ARGUMENTS
    if type(value) is dict or isinstance(value, Mapping):
        return {str(key): redact(inner, _called(str(key), name), texts=texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        within = name if name in _ADDRESSES else ""
        return [redact(inner, within, texts=texts) for inner in value]
    if not isinstance(value, str):
        return HIDDEN if isinstance(value, SecretNumber) else value
    text = value.shown if isinstance(value, Secret) else value
    if name in _ADDRESSES:
        before, mark, _ = _redact_text(text)[0].partition("?")
        return before + mark + HIDDEN * bool(mark)
    if texts:
        return _short_text(text) if len(text) <= SHORT else _redact_text(text)[0]
    return _PASSWORD.sub(f"{HIDDEN}@", text) if "://" in text else text


_NEVER_SECRET: Sequence[type] = (float, bool, type(None))
SHORT = 100
"""Letters of a text that is redacted once: names of tasks and metrics are in a run's results many times."""


@lru_cache(4096)
def _short_text(text: str) -> str:
    return _redact_text(text)[0]


def seal(value: T, name: str = "", *, texts: bool = False) -> T:
    """The settings with a Secret in place of every text that `redact` would change; the same object where there is none.

    >>> seal({"api_key": "abc123", "url": "https://me:pw@host/v1", "limit": 5})
    {'api_key': '***', 'url': 'https://***@host/v1', 'limit': 5}
    """
    sealed: Any = value
    if type(value) is str:
        if texts or "://" in sealed or not _is_usual(name):
            shown = redact(value, name, texts=texts)
            sealed = value if shown == value else Secret(sealed, shown)
    elif type(value) is dict or isinstance(value, Mapping):
        sealed = _seal_mapping(sealed, name, (texts and name not in _PROMPTS) or name in _ARGUMENTS)
    elif type(value) is list or isinstance(value, tuple):
        name = name if name in _ADDRESSES or _hides_all(name) else ""
        sealed = _list_of(sealed, [seal(inner, name, texts=texts) for inner in sealed])
    elif type(value) is int and not _is_usual(name) and redact(value, name) == HIDDEN:
        sealed = SecretNumber(sealed)
    return cast("T", sealed)


def _seal_mapping(value: Mapping[str, Any], name: str, texts: bool) -> Mapping[str, Any]:
    """A loop, since the files of thousands of tasks are read at once, and hardly any has a secret."""
    sealed: dict[str, Any] = {}
    for key, inner in value.items():
        kind, below = type(inner), _name_below(name, str(key))
        if kind in _NEVER_SECRET or (kind is int and _is_usual(below)):
            continue
        if kind is str and not texts and "://" not in inner and _is_usual(below):
            continue
        sealed_inner = seal(inner, below, texts=texts)
        if sealed_inner is not inner:
            sealed[key] = sealed_inner
    return {**value, **sealed} if sealed else value


@lru_cache(4096)
def _is_usual(name: str) -> bool:
    """Whether a name says nothing about its value: as those of nearly all settings."""
    return not (_hides_all(name) or name == _ENV or name in _ARGUMENTS or name in _ADDRESSES or name in _PROMPTS)


def _list_of(value: Sequence[Any], items: Sequence[Any]) -> Sequence[Any]:
    """A list or tuple with these items, which is itself if they are its own; a NamedTuple is a record, and stays as it is."""
    return value if type(value) not in (list, tuple) or all(map(is_, items, value)) else type(value)(items)  # type: ignore[call-arg]


@lru_cache(4096)
def _hides_all(name: str) -> bool:
    return is_header(name) or is_secret(name)


@lru_cache(4096)
def _name_below(name: str, key: str) -> str:
    """The name by which a value is judged: below headers, an environment and secrets everything is one, whatever its key is."""
    if name == _ENV:
        return _HEADER
    return name if _hides_all(name) else "" if name in _DOCUMENTS else _called(key, name)


def reveal(value: T) -> T:
    """The settings with plain texts in place of Secrets: for user code and libraries, and for what identifies a model or a task."""
    revealed: Any = value
    if isinstance(value, Secret):
        revealed = str(value)
    elif isinstance(value, SecretNumber):
        revealed = int(value)
    elif isinstance(value, Mapping):
        below = {key: reveal(inner) for key, inner in value.items()}
        revealed = value if all(map(is_, below.values(), value.values())) else below
    elif isinstance(value, list | tuple):
        revealed = _list_of(value, [*map(reveal, value)])
    return cast("T", revealed)


def secrets_in(value: AnyJSON, name: str = "") -> Iterator[str]:
    """The texts of a value that `redact` would hide by their names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            called = _called(str(key), name)
            yield from secrets_in(inner, name if is_header(name) or is_secret(name) else called)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner, name)
    elif isinstance(value, str) and (is_header(name) or is_secret(name)):
        yield value


_written: list[tuple[AnyJSON, AnyJSON]] = []
"""The parameters that were redacted last, and how they are written: all requests of a task share theirs."""


def written_arguments(request: Request) -> tuple[AnyJSON, ...]:
    """The arguments of a request as they may be written down: LiteLLM is given headers and keys among the parameters."""
    plain = arguments(request)
    if not isinstance(request, Generate):
        return plain
    if not _written or _written[0][0] is not request.params:
        _written[:] = [(request.params, redact(plain[1], texts=False))]
    return plain[0], dict(_written[0][1])


def _is_environment(name: str, value: AnyJSON) -> bool:
    """Whether a value is the environment of a process, as tool servers are given it."""
    return name == _ENV and isinstance(value, Mapping)


@lru_cache(1024)
def is_header(name: str) -> bool:
    """Whether a key names headers of requests: each of their values may be a secret, under any name.

    >>> [is_header(name) for name in ("header", "extra_headers", "defaultHeaders", "Cookie", "headerless")]
    [True, True, True, True, False]
    """
    return bool(name) and _HEADERS.search(name) is not None


def _is_numbers(value: AnyJSON) -> bool:
    """Whether a value is a number, or consists of numbers: token counts are not secret, even if their name sounds so."""
    if isinstance(value, Mapping):
        return all(map(_is_numbers, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float | None)


SCHEMAS = ("properties", "fields")
"""Keys of schemas below which there are names of fields."""


def _is_long(value: AnyJSON) -> bool:
    """Whether a number may be a password."""
    return isinstance(value, int) and value >= 10**5


def _called(key: str, within: str) -> str:
    """Return the key of a value: `key` among the `params` of a metric is the name of a column, not a secret."""
    return "" if (within, key) == ("params", "key") or within in SCHEMAS else key


def redact_command(arguments: Sequence[str]) -> list[str]:
    """Redact a command line: also where a flag and its value are separate."""
    hidden, missing, redacted_arguments = False, "", list[str]()
    for argument in arguments:
        if missing and not argument.startswith("--"):  # headers or a key that the shell cut at their blanks
            redacted_arguments.append(HIDDEN)
            is_end = missing in argument if missing in _QUOTES else argument.endswith(tuple(missing))
            missing = "" if is_end else missing
            continue
        flag, equals, _ = argument.partition("=")
        name = flag.lstrip("-")
        is_named = flag.startswith("--") and is_secret(name)
        text, missing = (f"{flag}={HIDDEN}", "") if is_named and equals else _redact_text(argument, command=True)
        redacted_arguments.append(HIDDEN if hidden else text)
        hidden = (is_named and not equals) or _CUT.search(argument) is not None
    return redacted_arguments


def redact_manifest(manifest: JSONObject) -> JSONDict:
    """Redact a manifest of any origin. Tasks may be called anything.

    >>> redact_manifest({"spec": {"model_args": {"api_key": "abc"}}, "tasks": {"key": {"size": 5}}})
    {'spec': {'model_args': {'api_key': '***'}}, 'tasks': {'key': {'size': 5}}}
    """
    return {
        key: {name: redact(facts) for name, facts in value.items()}
        if key == "tasks" and isinstance(value, Mapping)
        else redact(value, key)
        for key, value in manifest.items()
    }


def redact_results(content: JSONObject) -> JSONDict:
    """Redact the content of a results.json of any origin.

    >>> redact_results({"config": {"model_args": {"api_key": "abc"}}, "tasks": {"key": {"alias": "key"}}})
    {'config': {'model_args': {'api_key': '***'}}, 'tasks': {'key': {'alias': 'key'}}}
    """
    return {key: _results_part(key, value) for key, value in content.items()}


def _results_part(key: str, value: AnyJSON) -> AnyJSON:
    if key == "tasks" and isinstance(value, Mapping):
        return {name: _entry(task) for name, task in value.items()}
    if key == "facts" and isinstance(value, Mapping):
        return {name: redact(fact, name) for name, fact in value.items()}
    return redact(value, key) if key == "config" else _by_names(value)


def _entry(task: AnyJSON) -> AnyJSON:
    """Redact the results of a task; texts in its settings are prompts."""
    if not isinstance(task, Mapping):
        return redact(task)
    return {key: redact(part, texts=False) if key == "config" else _by_names(part) for key, part in task.items()}


def _by_names(value: AnyJSON, name: str = "") -> AnyJSON:
    """Redact a part of the results: its keys are names of tasks, metrics, filters and models, which may be
    anything; only a group's metadata is written by users."""
    if name == "metadata":
        return redact(value, name)
    if type(value) is dict or isinstance(value, Mapping):
        return {key: _by_names(inner, str(key)) for key, inner in value.items()}
    return [_by_names(inner) for inner in value] if isinstance(value, list) else redact(value)
