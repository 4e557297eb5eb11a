"""What all models behind servers share. A protocol says how a request becomes a body, and an answer a response."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from assay.config.option import Remark, option
from assay.config.source import digest
from assay.errors import ConfigError, Place, Problem
from assay.models.prices import Price, price_of
from assay.models.protocol import Can, Samples
from assay.models.reasoning import END, START
from assay.models.servers.http import Http, Refused, without_user
from assay.models.servers.secrets import hidden_texts, secret
from assay.models.servers.usage import counted
from assay.models.tokens import stops_of as stops_of
from assay.records import (
    DEFAULT_MAX_GEN_TOKS,
    LIMITS,
    Failed,
    Generate,
    Loglikelihood,
    Message,
    Prompt,
    Request,
    Response,
    Text,
    Trouble,
    arguments,
    limit_of,
)  # fmt: skip

ANSWERS = ("header", "max_length", "max_gen_toks", "seed", "reasoning", "think_start_token", "think_end_token")
"""What of a connection answers depend on: with another of these, another key."""
VARIES = "it says now this, now that"
"""Of a model that does not say the same twice: its name is all that is known of it."""
PROBE = "Go on with this story. The quick brown fox jumps over the lazy dog, and then"
"""What a server of the user's is asked before a run: what it says tells it from others of its name."""
PROBE_TOKENS = 16
GREETING = "The quick brown fox jumps over the lazy"
"""What is asked at a provider's own address, where a name is one model: most say the same each time. Version 0.1 asked it
everywhere, and the keys of its folders depend on the answer."""
GREETING_TOKENS = 8
TRIES = 4
"""How often a model that says something else than it did is asked again before it counts as another."""
OWN = ("until", "do_sample", "temperature", *LIMITS)
SEEDS = 2**31
"""Seeds are below this: no server takes fewer."""
LONG = 2048
"""Generations that may be longer than this are streamed: a time-out is then for the next piece, not for the whole."""


def _positive(value: object) -> Iterator[Remark]:
    if isinstance(value, int | float) and value <= 0:
        yield (), f"must be above 0, not {value}", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Arguments of every model behind a server. The names are lm-eval's where it has one."""

    base_url: tuple[str, ...] | None = option("Address of the server; a list shares the load.", None, many=True)
    num_concurrent: int = option("Maximum number of concurrent requests.", 32, check=_positive)
    timeout: float = option(
        "Timeout in seconds for a response or, if streamed, its next chunk.", 300.0, check=_positive
    )
    max_retries: int = option("Maximum number of attempts per request.", 8, check=_positive)
    api_key: str | None = option("`env:NAME`, `file:PATH`, or the key.", None)
    header: Mapping[str, str] | None = option("Additional HTTP headers.", None)
    verify_certificate: bool = option("Verify the TLS certificate.", True)
    ca_cert_path: str | None = option("CA certificate file for that.", None)
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


class Served:
    """A model behind a server. A subclass says `generate`; what it can beyond that, it adds."""

    name = "served"
    public = ""
    """Where it is found when nobody says."""
    variables: tuple[str, ...] = ()
    """Where its key is in the environment."""
    endings: tuple[str, ...] = ()
    """What lm-eval's users write behind the address."""

    samples: Samples = "unless greedy"
    """When its texts are drawn: what a server does where nothing is said is its own affair."""
    without: frozenset[str] = frozenset()
    """Arguments of a connection that this protocol has no use for: they are refused."""

    def __init__(self, model: str, connection: Connection | None = None, **telling: Any) -> None:
        """`telling` is whatever else its answers depend on."""
        self.connection = told = connection or Connection()
        self.model = model
        self._telling = {**telling, **{name: getattr(told, name) for name in ANSWERS}}
        self.urls, users, passwords = _addresses(told.base_url or self.public, self.endings)
        self.key = secret(told.api_key, *self.variables)
        self.max_length = told.max_length
        self.concurrency = told.num_concurrent
        self.can = Can(generate=True, loglikelihood=False, rolling=False, chat=True, samples=self.samples)
        self.answers_repeats = False
        self.price: Price | None = price_of(model, told.price_in, told.price_out, told.prices)
        self.attempts = told.max_retries
        self.thinks = told.reasoning
        self.remarks: dict[str, str] = {}
        """What a user should know, by the kind of request it is about."""
        headers = {**users, **self.headers(), **(told.header or {})}
        values = [*(told.header or {}).values(), *users.values(), *(url.partition("?")[2] for url in self.urls)]
        hidden = hidden_texts([self.key, *passwords], values)
        verify = told.ca_cert_path or told.verify_certificate
        self.http = Http(self.urls, headers, told.timeout, told.num_concurrent, hidden, verify)
        self._probe = (PROBE, PROBE_TOKENS) if told.base_url else (GREETING, GREETING_TOKENS)
        self._greeted: str | None = None
        self._recorded: str | None = None

    # what a protocol says

    def headers(self) -> dict[str, str]:
        """How the key is shown."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    async def generate(self, request: Generate) -> Response:
        raise NotImplementedError

    async def respond(self, request: Request) -> Response:
        """The response to any request; a protocol that can do more than generate says so here."""
        if isinstance(request, Generate):
            return await self.generate(request)
        return Failed(f"{self.name} gives no log-likelihoods")

    # what the engine asks

    @property
    def identity(self) -> str:
        """The name, what it was told, and what it said to the probe: with another of these, others answer. The address is in it
        only where the model does not say the same twice; else a server that moved is the same model."""
        if self._recorded is not None:
            return self._recorded
        return self._identified(" ".join(self.addresses) if self._greeted == VARIES else None, self._greeted)

    def _identified(self, address: str | None, said: str | None) -> str:
        """The identity of a model that says this; version 0.1 always had the address in it."""
        told = sorted((name, repr(value)) for name, value in self._telling.items() if value not in (None, False))
        named = f"{self.name} {self.model}" if address is None else f"{self.name} {address} {self.model}"
        return f"{named} {digest(f'{said} {told}'.encode())}"

    @property
    def addresses(self) -> list[str]:
        """Where it is, without what may be secret."""
        return [url.partition("?")[0] for url in self.urls]

    @property
    def probed(self) -> dict[str, str]:
        """What it was asked before the run, and what it said: stored, so that it is known again."""
        return {"asked": self._probe[0], "said": self._greeted or ""}

    async def recognise(self, recorded: str, said: str) -> None:
        """Find out whether this is the model of a run although it did not greet the same: then its identity is the recorded one,
        under which its answers are found. `said` is what the run has stored; a model that does not always say the same is
        asked again."""
        if said == VARIES:
            if recorded == self._identified(" ".join(self.addresses), VARIES):
                self._recorded = recorded
        elif recorded == self._identified(None, said):
            for _ in range(TRIES):
                if said in await self._said_twice(self.urls[:1], *self._probe):
                    self._recorded, self._greeted = recorded, VARIES
                    return

    async def recognise_old(self, recorded: str) -> None:
        """The same for a run of version 0.1, which stored the identity alone, with an address in it that may be another."""
        first, second = await self._said_twice(self.urls[:1], GREETING, GREETING_TOKENS)
        is_steady = first == second
        before, after = self._identified("\0", first if is_steady else VARIES).split("\0")
        address = recorded.removeprefix(before).removesuffix(after)
        is_same = f"{before}{address}{after}" == recorded and (is_steady or address.split() == self.addresses)
        is_same = is_same and all(each.startswith(("http://", "https://")) for each in address.split())
        self._recorded = recorded if is_same else None

    @property
    def _place(self) -> str:
        """The first address as messages show it."""
        return self.addresses[0]

    async def __aenter__(self) -> "Served":
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.__aexit__()

    async def ask(self, request: Request) -> Response:
        """The response to one request."""
        with self._told_plainly():
            try:
                found = await self.respond(request)
            except Refused as refused:
                return Failed(self.http.clean(str(refused)))
        if isinstance(found, Failed):
            return Failed(self.http.clean(found.reason))
        return found if found.usage is None else found._replace(usage=counted(found.usage))

    async def ask_repeats(self, requests: Sequence[Request]) -> Sequence[Response]:
        return [await self.ask(request) for request in requests]

    @contextmanager
    def _told_plainly(self) -> Iterator[None]:
        """Errors of an answer that is not as it should be are troubles; and no trouble tells a key."""
        try:
            yield
        except Trouble as trouble:
            trouble.args = (self.http.clean(str(trouble)),)
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            what = f"the answer is not of the protocol: {type(error).__name__}: {error}"
            raise Trouble(self.http.clean(what)) from None

    def estimate(self, request: Request) -> float:
        """The most a request may cost: as if a token had two bytes, and all that may be written were."""
        if self.price is None:
            return 0.0
        texts = arguments(request)[: 2 if isinstance(request, Loglikelihood) else 1]
        length = sum(len(text.encode("utf-8", "replace")) for text in texts)
        return self.price.most(length, self.written(request))

    def written(self, request: Request) -> int:
        """How many tokens it may write."""
        if not isinstance(request, Generate):
            return 1
        return self.limit(request.params) or self.max_length or 32_768

    def cost(self, response: Response) -> float | None:
        """What a response cost; None where the server does not tell what it took."""
        if self.price is None or isinstance(response, Failed) or response.usage is None:
            return None
        told = response.usage.read or response.usage.written
        return self.price.of(response.usage) if told else None

    async def probe(self) -> bool:
        """Whether it can be reached, and is who it was: another model in its place ends the run."""
        try:
            found = await self._said()
            is_other = self._greeted not in (None, VARIES, found) and await self._said() != self._greeted
        except (Trouble, Refused):
            return False
        if is_other:
            what = f"another model answers at {self._place} than before: nothing of it was mixed in"
            raise ConfigError([Problem(Place("model"), what, "start the server with the model of this run, and go on")])
        return True

    async def greet(self) -> None:
        """Ask something before anything counts, each server twice: what it says is part of who it is, if it stands by it."""
        said = await self._said_twice(self.urls, *self._probe)
        steady = all(first == second for first, second in zip(said[::2], said[1::2], strict=True))
        if steady and len(set(said)) > 1:
            what = "the servers of base_url do not say the same: they are not one model"
            raise ConfigError([Problem(Place("model_args.base_url"), what, "list servers of one model")])
        self._greeted, self._recorded = said[0] if steady else VARIES, None

    async def _said_twice(self, urls: Sequence[str], prompt: str, limit: int) -> list[str]:
        """What servers say to a prompt, each asked twice."""
        whole, said = self.http, list[str]()
        try:
            for url in urls:
                self.http = replace(whole, urls=[url])
                async with self:
                    said += [await self._said(prompt, limit), await self._said(prompt, limit)]
        except Refused as refused:
            fix = f"is {self.model!r} the model's name at {self._place}, and is the key right?"
            raise ConfigError([Problem(Place("model"), str(refused), fix)]) from None
        finally:
            self.http = whole
        return said

    async def _said(self, prompt: str | None = None, limit: int = 0) -> str:
        """What it says to a prompt, word for word; to the probe, where none is given."""
        prompt, limit = (prompt, limit) if prompt is not None else self._probe
        with self._told_plainly():
            said = await self.generate(Generate(prompt, {"max_gen_toks": limit, "do_sample": False, "until": []}))
        if isinstance(said, Failed):
            raise Refused(said.reason)
        return (said.text or said.reasoning or "") if isinstance(said, Text) else str(said)

    def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> Prompt:  # noqa: ARG002  # servers open it
        """A conversation is sent as it is: the server has the template."""
        return messages

    def count_tokens(self, text: str) -> int | None:  # noqa: ARG002  # only the server knows
        return None

    # what protocols need

    def limit(self, params: Mapping[str, object]) -> int | None:
        """How many tokens may be generated; None: as many as the model can, which is what thinking needs."""
        found = limit_of(params) or self.connection.max_gen_toks
        return found if found is not None or self.thinks else DEFAULT_MAX_GEN_TOKS

    @property
    def tags(self) -> tuple[str, str] | None:
        """What thinking stands between, where the model is known to think."""
        return (
            (self.connection.think_start_token, self.connection.think_end_token) if self.connection.reasoning else None
        )

    def is_streamed(self, limit: int | None) -> bool:
        return self.connection.stream if self.connection.stream is not None else limit is None or limit > LONG


def seed_of(request: Generate, seed: int) -> int:
    """The seed that a server is sent: the one given, counted on by repeats; for every draw of a run another one."""
    drawn = int.from_bytes(blake2b(request.draw, digest_size=4).digest()) >> 1 if request.draw else 0
    return (seed + request.repeat + drawn) % SEEDS if drawn else seed + request.repeat


def temperature_of(params: Mapping[str, object]) -> Any:
    """0 where nothing is drawn; where drawing is asked for without a temperature, 1."""
    if params.get("do_sample") is False:
        return 0.0
    return params.get("temperature", 1.0 if params.get("do_sample") else 0.0)


def _addresses(base_url: str | Sequence[str], endings: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """The addresses without endings, names and passwords; the header that says those; and the passwords."""
    urls: list[str] = []
    users: list[str] = []
    passwords: list[str] = []
    for written in [base_url] if isinstance(base_url, str) else base_url:
        if written:  # LiteLLM may be given none
            _check_address(written)
        url, user = without_user(written)
        before, question, query = url.partition("?")
        before = before.rstrip("/")
        before = next((before.removesuffix(ending) for ending in endings if before.endswith(ending)), before)
        urls.append(f"{before}{question}{query}")
        users += [user] if user else []
        passwords += [part for part in (urlsplit(written).password,) if part]
    if len(set(users)) > 1 or (users and len(users) < len(urls)):
        what = "the addresses name different users"
        raise ConfigError([Problem(Place("model_args.base_url"), what, "give all of them the same name and password")])
    return urls, {"Authorization": users[0]} if users else {}, passwords


def _check_address(url: str) -> None:
    """Refuse what is not the address of a server before anything waits for it; it is not repeated: it may hold a password."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        is_right = False
    if not is_right:
        fix = "write it like http://127.0.0.1:8000/v1, or https://…"
        raise ConfigError([Problem(Place("model_args.base_url"), "this is not the address of a server", fix)])
