"""The base of all models behind servers. A subclass implements one protocol: request to body, answer to response."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from assay.config.option import Remark, YAMLValue, option
from assay.config.source import Source, digest, read_bytes
from assay.config.task import GenerationParams
from assay.errors import ConfigError, Place, did_you_mean
from assay.models.endings import is_failed_end
from assay.models.protocol import Can, PermanentError, RetryableError, Samples
from assay.models.reasoning import END, START
from assay.models.servers.bodies import MB, StreamLimits
from assay.models.servers.http import Http, with_path
from assay.models.servers.proxies import without_user
from assay.models.servers.reading import MAX_NAME, ServerJSON, checked_usage, is_same_model
from assay.models.servers.remedies import PATH_STATUSES, refusal_remedy, served_names, status_of
from assay.models.servers.secrets import hidden_texts, secret
from assay.models.tokenizer import stops_of as stops_of
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    JSON,
    LIMITS,
    Failed,
    Generate,
    JSONDict,
    Likelihood,
    Loglikelihood,
    Message,
    Prompt,
    Request,
    Response,
    Text,
    Usage,
    arguments,
    limit_of,
)  # fmt: skip
from assay.redaction import reveal, seal, secrets_in

IDENTITY_ARGUMENTS = (
    "header",
    "max_length",
    "max_gen_toks",
    "seed",
    "reasoning",
    "think_start_token",
    "think_end_token",
)
"""Connection arguments that responses depend on: they are part of the identity."""
NONDETERMINISTIC = "it says now this, now that"
"""Stored instead of the reply of a model that does not repeat itself; part of identities on disk, so the text stays."""
PROBE = "Go on with this story. The quick brown fox jumps over the lazy dog, and then"
"""Prompt that identifies a user's server before a run: the reply distinguishes models of the same name."""
PROBE_TOKENS = 16
GREETING = "The quick brown fox jumps over the lazy"
"""Prompt for a provider's own address, where a name is one model and longer replies vary more."""
GREETING_TOKENS = 8
RECOGNITION_ATTEMPTS = 4
"""Number of attempts to get the stored reply before the model counts as a different one."""
RENAMED_PARAMETERS = ("until", "do_sample", "temperature", *LIMITS)
SEEDS = 2**31
"""Upper bound of seeds that every server accepts."""
MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""Errors that reading an answer raises where it is not of the protocol."""
MILLION = 1_000_000
MAX_HOST = 253
LABEL = re.compile(r"\w([\w-]{0,61}\w)?", re.ASCII)
"""A part of a host's name; underscores are common in container networks."""
VERSION = re.compile(r"/v\d+[a-z0-9]*$")
"""The end of an API's address."""
FIRST_CONCURRENCY = 4
MAX_NAMES = 1000
"""Number of names of models that are remembered."""
MAX_TOKENS = 32_768
"""Tokens of a generation without a limit."""
TIMEOUT_TOKENS = 256
"""A streamed answer may take `timeout`, and as long again for so many of its tokens: at the default 1.2 s each."""
STREAMED_ABOVE = 2048
"""Generations that may be longer than this are streamed: the timeout then applies to the next chunk."""
REST_SECONDS = 0.5
"""How long the end of a body is waited for behind the end of its answer."""
SLACK_BYTES, TOKEN_BYTES, EVENT_BYTES = 2**20, 256, 4096
"""Upper bounds of an answer, for each token asked for: its text, and its event in a stream with log-probabilities."""
SLACK_EVENTS, TOKEN_EVENTS = 1000, 16
"""The same for events: some gateways send one for each letter, and a sign of life every few seconds."""


def _positive(value: YAMLValue) -> Iterator[Remark]:
    if isinstance(value, int | float) and value <= 0:
        yield (), f"must be above 0, got {value}", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Arguments of every model behind a server. The names are lm-eval's where it has one."""

    base_url: tuple[str, ...] | None = option("Address of the server; a list shares the load.", None, many=True)
    num_concurrent: int = option("Maximum number of concurrent requests.", 32, check=_positive)
    timeout: float = option(
        "Timeout in seconds for a response or, if streamed, its next chunk; all of it may take timeout × (1 + tokens / 256).",
        300.0,
        check=_positive,
    )
    max_retries: int = option("Maximum number of attempts per request.", 8, check=_positive)
    max_response_mb: int = option(
        "Maximum size of a response in MB, after decompression; all in flight take at most twice that.",
        64,
        check=_positive,
    )
    api_key: str | None = option("`env:NAME`, `file:PATH`, or the key.", None)
    header: Mapping[str, str] | None = option("Additional HTTP headers.", None)
    verify_certificate: bool = option("Verify the TLS certificate.", True)
    ca_cert_path: str | None = option("CA certificate file for that.", None)
    proxy: str | None = option(
        "`http://HOST:PORT`, `env:NAME`, `file:PATH`, or `off`; default: HTTPS_PROXY and NO_PROXY, not for loopback.",
        None,
    )
    max_length: int | None = option("Context length in tokens.", None, check=_positive)
    max_gen_toks: int | None = option(
        "Maximum number of generated tokens if the task sets none.", None, check=_positive
    )
    seed: int | None = option("Sent with each request; repeats and sampled texts each derive their own from it.", None)
    stream: bool | None = option("Stream responses; default: only long ones.", None)
    reasoning: bool = option("The model thinks before it answers.", False)
    think_start_token: str = option("Start of thinking.", START)
    think_end_token: str = option("End of thinking.", END)
    price_in: float | None = option("Price per million input tokens.", None)
    price_out: float | None = option("Price per million output tokens.", None)
    prices: str | None = option("File with prices per model.", None)

    def __repr__(self) -> str:
        """The arguments without secrets: tracebacks with local variables show it."""
        return f"Connection({seal({each.name: getattr(self, each.name) for each in fields(self)})})"


class ManagedBackend(Protocol):
    """Servers that the run itself started."""

    command: str
    """The command that starts one, without secrets."""

    def usage(self) -> JSONDict:
        """Their number and their restarts."""
        ...

    def stop(self) -> None: ...


class ServerModel:
    """A model behind a server. A subclass implements `generate`, and `respond` if it can do more."""

    name = "served"
    public = ""
    """Default address."""
    variables: tuple[str, ...] = ()
    """Environment variables of its key."""
    endings: tuple[str, ...] = ()
    """Path suffixes that lm-eval's users add to the address."""

    version = ""
    """End of every address of the protocol: it is added to one without a version."""
    samples: Samples = "unless greedy"
    """When its texts are sampled: the default of a server is unknown."""
    unsupported_connection: frozenset[str] = frozenset()
    """Connection arguments that this protocol does not support: they are refused."""

    def __init__(self, model: str, connection: Connection | None = None, **identity_fields: JSON) -> None:
        """`identity_fields` are further arguments that responses depend on."""
        self.connection = connection = connection or Connection()
        self.model = model
        self._identity_fields = {**identity_fields, **{name: getattr(connection, name) for name in IDENTITY_ARGUMENTS}}
        self.urls, users, passwords = _addresses(connection.base_url or self.public, self.endings, self.version)
        self.key = secret(connection.api_key, *self.variables)
        self.max_length = connection.max_length
        self.concurrency = connection.num_concurrent
        self.can = Can(generate=True, loglikelihood=False, rolling=False, chat=True, samples=self.samples)
        self.answers_repeats = False
        self.is_usage_bound = False
        """Whether the tokens that the server counts may be fewer than it generated."""
        self.price: Price | None = price_of(model, connection.price_in, connection.price_out, connection.prices)
        self.attempts = connection.max_retries
        self.thinks = connection.reasoning
        self.managed: ManagedBackend | None = None
        self.remarks: dict[str, str] = {}
        """Notes for the user, by request kind."""
        headers = {**users, **self.headers(), **(connection.header or {})}
        values = [*(connection.header or {}).values(), *users.values(), *(url.partition("?")[2] for url in self.urls)]
        hidden = hidden_texts([self.key, *passwords], values)
        verify = connection.ca_cert_path or connection.verify_certificate
        most = connection.max_response_mb * MB
        proxy = secret(connection.proxy) if connection.proxy is not None else None
        self.http = Http(self.urls, headers, connection.timeout, connection.num_concurrent, hidden, verify, most, proxy)
        self._probe = (PROBE, PROBE_TOKENS) if connection.base_url else (GREETING, GREETING_TOKENS)
        self._reply: str | None = None
        self._recorded: str | None = None
        self._names: dict[str, str] = {}

    # implemented by a protocol

    def headers(self) -> dict[str, str]:
        """HTTP headers with the key."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    async def generate(self, request: Generate) -> Response:
        raise NotImplementedError

    async def respond(self, request: Request) -> Response:
        """Answer any request; a protocol that can do more than generate overrides this."""
        if isinstance(request, Generate):
            return await self.generate(request)
        return Failed(f"{self.name} has no log-likelihoods")

    # used by the engine

    @property
    def identity(self) -> str:
        """Fingerprint of the name, the arguments and the reply to the probe. The address is part of it only for a
        nondeterministic model; otherwise a server that moved is the same model."""
        if self._recorded is not None:
            return self._recorded
        return self._identity_with(self._reply)

    @property
    def _source(self) -> str:
        """The addresses, which change with every start of servers that the run starts: their command does not."""
        return " ".join(self.addresses) if self.managed is None else self.managed.command

    def _identity_with(self, reply: str | None) -> str:
        """Return the identity of a model with this reply."""
        fields = sorted(
            (name, repr(reveal(value))) for name, value in self._identity_fields.items() if value not in (None, False)
        )
        named = f"{self.name} {self._source} {self.model}" if reply == NONDETERMINISTIC else f"{self.name} {self.model}"
        return f"{named} {digest(f'{reply} {fields}'.encode())}"

    @property
    def addresses(self) -> list[str]:
        """Addresses without secrets."""
        return [url.partition("?")[0] for url in self.urls]

    @property
    def probed(self) -> dict[str, str]:
        """The probe and the reply before the run, stored in the manifest to recognize the model on resume."""
        return {"asked": self._probe[0], "said": self._reply or ""}

    async def recognize(self, recorded: str, reply: str) -> None:
        """Use the recorded identity if this is the model of the run although its first reply differs. `reply` is the stored
        one; a model that does not always repeat itself is asked again."""
        if reply == NONDETERMINISTIC:
            if recorded == self._identity_with(NONDETERMINISTIC):
                self._recorded = recorded
        elif recorded == self._identity_with(reply):
            for _ in range(RECOGNITION_ATTEMPTS):
                if reply in await self._replies(self.urls[:1]):
                    self._recorded, self._reply = recorded, NONDETERMINISTIC
                    return

    @property
    def _place(self) -> str:
        """The first address as messages show it."""
        return self.addresses[0]

    @property
    def first_concurrency(self) -> int:
        """Requests at once with which a run begins: what the servers offer, or a few, which grow with the answers."""
        return self.http.slots or FIRST_CONCURRENCY

    async def __aenter__(self) -> "ServerModel":
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.http.__aexit__()

    async def ask(self, request: Request) -> Response:
        """The response to one request."""
        try:
            with self._protocol_errors(request):
                response = await self.respond(request)
        except PermanentError as refused:
            return Failed(self._clean(str(refused), request))
        return self._checked(response, request)

    def _clean(self, text: str, request: Request | None) -> str:
        """Redact secrets of the connection, and those among the parameters of a request."""
        params = request.params if isinstance(request, Generate) else {}
        return self.http.clean(text, hidden_texts(secrets_in(params), ()))

    def _checked(self, response: Response, request: Request) -> Response:
        """Return a response without secrets and invalid counts, and with the model's name if that is another one."""
        if isinstance(response, Failed):
            return Failed(self._clean(response.reason, request))
        if not isinstance(response, Text | Likelihood):
            return response
        used = response.usage if response.usage is None else checked_usage(response.usage)
        name = self._other_name(response.model) if response.model else ""
        return (
            response if used is response.usage and name == response.model else response._replace(usage=used, model=name)
        )

    def _other_name(self, named: str) -> str:
        """Return the name that a server gave its model; empty if it is the one that was asked for."""
        if named not in self._names:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            shown = "".join(letter if letter.isprintable() else "?" for letter in named[:MAX_NAME])
            self._names[named] = "" if is_same_model(self.model, named) else self.http.clean(shown)
        return self._names[named]

    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]:
        return [await self.ask(request) for request in requests]

    def _protocol_errors(self, request: Request | None = None) -> "ProtocolErrors":
        """Convert errors of a malformed answer to RetryableErrors, without secrets."""
        return ProtocolErrors(partial(self._clean, request=request))

    def estimate(self, request: Request) -> float:
        """Maximum cost of a request: two bytes per token, and the whole limit generated."""
        if self.price is None:
            return 0.0
        texts = arguments(request)[: 2 if isinstance(request, Loglikelihood) else 1]
        length = sum(len(text.encode("utf-8", "replace")) for text in texts)
        return self.price.maximum(length, self.max_output(request))

    def max_output(self, request: Request) -> int:
        """Maximum number of generated tokens."""
        if not isinstance(request, Generate):
            return 1
        return self.limit(request.params) or self.max_length or MAX_TOKENS

    def cost(self, response: Response) -> float | None:
        """Cost of a response; None if the server does not report usage."""
        if self.price is None or isinstance(response, Failed) or response.usage is None:
            return None
        is_reported = response.usage.read or response.usage.written
        return self.price.of(response.usage) if is_reported else None

    async def probe(self) -> bool:
        """Whether the server answers. Raise a ConfigError if it now serves a different model."""
        try:
            reply = await self._probe_reply()
            is_other = self._reply not in (None, NONDETERMINISTIC, reply) and await self._probe_reply() != self._reply
        except (RetryableError, PermanentError):
            return False
        if is_other:
            what = f"the server at {self._place} now serves a different model; none of its responses were used"
            raise ConfigError.at(
                "model", what, "start the server with the model of this run, then run the same command to resume"
            )
        return True

    async def greet(self) -> None:
        """Send every server the probe twice, with greedy decoding; a reply that stays the same becomes part of the identity."""
        replies = await self._replies(self.urls)
        is_stable = all(first == second for first, second in zip(replies[::2], replies[1::2], strict=True))
        if is_stable and len(set(replies)) > 1:
            what = "the servers of base_url serve different models: their replies to one prompt differ"
            raise ConfigError.at("model_args.base_url", what, "list servers of one model")
        self._reply, self._recorded = replies[0] if is_stable else NONDETERMINISTIC, None

    async def _replies(self, urls: Sequence[str]) -> list[str]:
        """Return the replies of servers to the probe, two of each."""
        whole, replies, offered = self.http, list[str](), list[int | None]()
        try:
            for url in urls:
                self.http = replace(whole, urls=[url], down=set())
                async with self:
                    replies += [await self._probe_reply(), await self._probe_reply()]
                    offered.append(await self.http.offered_slots())
        except PermanentError as refused:
            fix = await self._version_remedy(str(refused))
            if not fix:
                async with self.http:
                    served = served_names(await self.http.get("/models"))
                fix = refusal_remedy(str(refused), self.name, self.model, self._place, served, self._key_source)
            raise ConfigError.at("model", str(refused), fix) from None
        finally:
            self.http = whole
        self.http.slots = sum(filter(None, offered)) if None not in offered else None
        return replies

    async def _version_remedy(self, reason: str) -> str:
        """Return the remedy for an address without /v1, if there is a server behind it; empty otherwise."""
        greeted, url = self.http, self.http.urls[0]
        if status_of(reason) not in PATH_STATUSES or VERSION.search(url.partition("?")[0]):
            return ""
        self.http = replace(greeted, urls=[with_path(url, "/v1")], down=set())
        try:
            async with self:
                await self._probe_reply()
        except PermanentError as refused:
            if status_of(str(refused)) in PATH_STATUSES:
                return ""
        except RetryableError:
            return ""
        finally:
            self.http = greeted
        return f"did you mean base_url={url.partition('?')[0]}/v1?"

    @property
    def _key_source(self) -> str:
        """Where the key comes from, and whether there is one."""
        given = self.connection.api_key
        if given is not None:
            return f"api_key={given}" if given.startswith(("env:", "file:")) else "the one in api_key"
        found = next((name for name in self.variables if os.environ.get(name)), None)
        if found is not None:
            return f"{found} is set, and was sent"
        return f"{' or '.join(self.variables)} is read, and is not set" if self.variables else "none was sent"

    async def _probe_reply(self) -> str:
        """Return the reply to the probe."""
        prompt, limit = self._probe
        with self._protocol_errors():
            reply = await self.generate(Generate(prompt, {"max_gen_toks": limit, "do_sample": False, "until": []}))
        if isinstance(reply, Failed):
            if is_failed_end(
                reply.reason
            ):  # an agent's model may call a tool whatever it is asked: it answers, and that is all
                return reply.reason
            raise PermanentError(reply.reason)
        return (reply.text or reply.reasoning or "") if isinstance(reply, Text) else str(reply)

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt:  # noqa: ARG002  # servers open it
        """Return a conversation unchanged: the server has the template."""
        return messages

    def count_tokens(self, text: str) -> int | None:  # noqa: ARG002  # only the server knows
        return None

    # used by protocols

    def limit(self, params: GenerationParams) -> int | None:
        """Maximum number of generated tokens; None means without limit, as reasoning needs."""
        limit = limit_of(params) or self.connection.max_gen_toks
        return limit if limit is not None or self.thinks else DEFAULT_MAX_GEN_TOKS

    @property
    def tags(self) -> tuple[str, str] | None:
        """Tags around the reasoning, if the model is known to reason."""
        return (
            (self.connection.think_start_token, self.connection.think_end_token) if self.connection.reasoning else None
        )

    def max_text(self, limit: int | None) -> int:
        """Maximum bytes of a text of so many tokens."""
        return self.http.limit if limit is None else min(self.http.limit, SLACK_BYTES + TOKEN_BYTES * limit)

    def max_stream(self, limit: int | None) -> StreamLimits:
        """Maximum size and duration of a stream of so many tokens."""
        seconds = self.connection.timeout * (1 + (MAX_TOKENS if limit is None else limit) / TIMEOUT_TOKENS)
        if limit is None:
            return StreamLimits(self.http.limit, seconds=seconds)
        return StreamLimits(SLACK_BYTES + EVENT_BYTES * limit, SLACK_EVENTS + TOKEN_EVENTS * limit, seconds)

    def is_streamed(self, limit: int | None) -> bool:
        return self.connection.stream if self.connection.stream is not None else limit is None or limit > STREAMED_ABOVE


class ProtocolErrors:
    """Context manager around the reading of an answer: errors of a malformed one become RetryableErrors.

    A class, since a generator takes four times as long, for every request.
    """

    __slots__ = ("_clean",)

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RetryableError):
            error.args = (self._clean(str(error)),)
        elif isinstance(error, MALFORMED) and not isinstance(error, ConfigError):  # a ValueError, too
            what = f"the answer is not of the protocol: {type(error).__name__}: {error}"
            raise RetryableError(self._clean(what), malformed=True) from None
        elif isinstance(error, MemoryError):
            raise PermanentError("the answer needs more memory than there is") from None


async def read_rest(events: AsyncIterator[ServerJSON], add: Callable[[ServerJSON], object]) -> None:
    """Add what a server sends behind the end of an answer: nothing, or text that belongs to another one. Waits a moment for
    it; then the connection is given up."""
    with suppress(TimeoutError, RetryableError):
        async with asyncio.timeout(REST_SECONDS):
            async for event in events:
                add(event)


def offers_tools(params: GenerationParams) -> bool:
    """Whether a request lets the model call tools."""
    return bool(params.get("tools")) and params.get("tool_choice") != "none"


def seed_of(request: Generate, seed: int) -> int:
    """Return the seed to send: the argument plus the repeat; distinct for every draw of a run."""
    drawn = int.from_bytes(blake2b(request.draw, digest_size=4).digest()) >> 1 if request.draw else 0
    return (seed + request.repeat + drawn) % SEEDS if drawn else seed + request.repeat


def temperature_of(params: GenerationParams) -> YAMLValue:
    """Return the temperature: 0 for greedy decoding, 1 for sampling without a given temperature."""
    if params.get("do_sample") is False:
        return 0.0
    return params.get("temperature", 1.0 if params.get("do_sample") else 0.0)


def _addresses(
    base_url: str | Sequence[str], endings: Sequence[str], version: str
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the addresses without suffixes and credentials, the header with the credentials, and the passwords."""
    urls: list[str] = []
    users: list[str] = []
    passwords: list[str] = []
    for address in [base_url] if isinstance(base_url, str) else base_url:
        if address:  # LiteLLM may have none
            _check_address(address)
        url, user = without_user(address)
        before, question, query = url.partition("?")
        before = before.rstrip("/")
        before = next((before.removesuffix(ending) for ending in endings if before.endswith(ending)), before)
        added = version if not VERSION.search(before) else ""
        urls.append(f"{before}{added}{question}{query}")
        users += [user] if user else []
        passwords += [part for part in (urlsplit(address).password,) if part]
    if len(set(users)) > 1 or (users and len(users) < len(urls)):
        what = "the addresses of base_url have different credentials"
        raise ConfigError.at("model_args.base_url", what, "use the same name and password in all of them")
    return urls, {"Authorization": users[0]} if users else {}, passwords


def _check_address(url: str) -> None:
    """Refuse an invalid address before a connection is tried; it is not printed, since it may contain a password."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and _is_host(parts.hostname or "") and parts.port != 0
        is_right = is_right and url.isprintable() and not any(letter in url for letter in " \\#")
    except ValueError:  # unclosed brackets, an invalid port
        is_right = False
    if not is_right:
        fix = "write it like http://127.0.0.1:8000/v1, or https://…"
        raise ConfigError.at("model_args.base_url", "invalid server address", fix)


def _is_host(host: str) -> bool:
    """Whether a host is an address or a name of valid labels; a ValueError for an invalid address."""
    labels = host.encode("idna").decode().removesuffix(".").split(".") if ":" not in host else []
    if not labels or labels[-1].isdecimal():
        ip_address(host)
    return len(host) <= MAX_HOST and all(LABEL.fullmatch(label) for label in labels)


class Price(NamedTuple):
    """Price per million tokens: input, output, and input from the provider's cache."""

    read: float
    written: float
    stored: float

    def of(self, usage: Usage) -> float:
        fresh = usage.read - usage.stored
        return (fresh * self.read + usage.stored * self.stored + usage.written * self.written) / MILLION

    def maximum(self, characters: int, written: int) -> float:
        """Maximum cost of a request, if a token has at least two characters."""
        return (characters / 2 * self.read + written * self.written) / MILLION


def price_of(model: str, read: float | None, written: float | None, table: str | None) -> Price | None:
    """Return the price of a model, from the arguments or the file; None if there is none."""
    if table is not None:
        return _listed_price(model, table)
    if read is None and written is None:
        return None
    return Price(read or 0.0, written or 0.0, read or 0.0)


def _listed_price(model: str, path: str) -> Price:
    """Return the row of a file such as `gpt-x: {in: 2.5, out: 10, stored: 1.25}`."""
    place = Place("model_args.prices")
    try:
        rows = Source(path, read_bytes(str(Path(path).expanduser()))).value
    except OSError as error:
        raise ConfigError.at(place, f"{path} cannot be read: {error.strerror}", "check the path") from None
    if not isinstance(rows, dict) or model not in rows:
        known = list(rows) if isinstance(rows, dict) else []
        raise ConfigError.at(place, f"no price for {model!r} in {path}", did_you_mean(model, known) or "add a row")
    row = rows[model]
    wrong = not isinstance(row, dict) or not {"in", "out"} <= set(row) <= {"in", "out", "stored"}
    if wrong or not all(isinstance(value, int | float) and value >= 0 for value in row.values()):
        fix = f"write `{model}: {{in: 2.5, out: 10}}`, per million tokens"
        raise ConfigError.at(place, f"invalid price for {model!r} in {path}", fix)
    return Price(float(row["in"]), float(row["out"]), float(row.get("stored", row["in"])))
