"""Every way a secret can enter, against every output: none comes out anywhere, in any form."""

import base64
import copy
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import assay
from assay.config.fields import Fields, Origin
from assay.engine.retry import RetryLimits
from assay.errors import AssayError, ConfigError
from assay.evaluation.options import run_config
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.models.load import load_model
from assay.redaction import conceal, redact, redact_command, reveal, seal
from assay.runs.results import plain
from canary_world import Said, after_a_run, canary, leaked, leaks_in_files, pages, said_by, write_yaml
from serving import Arrived, loopback
from small_runs import noting, run, write_task

QUESTIONS = ("plain", "refuse", "deny", "babble", "stray", "other")
"""The server does to each document as its question says."""


def shown(arrived: Arrived) -> str:
    """All that a request holds, as careless servers repeat it: plain, in quotes, and encoded."""
    plain = json.dumps([arrived.path, dict(arrived.headers), arrived.body.decode()])
    encoded = " ".join(base64.b64encode(value.encode()).decode() for value in arrived.headers.values())
    return f"{plain} {arrived.path} {encoded}"


def careless(arrived: Arrived) -> Any:
    text = "x"
    said: dict[str, Any] = {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    if b"refuse" in arrived.body:
        return 400, {}, {"error": {"message": shown(arrived)}}
    if b"deny" in arrived.body:
        return 401, {}, shown(arrived).encode()
    if b"babble" in arrived.body:
        return shown(arrived).encode()
    if b"stray" in arrived.body:
        return 307, {"Location": f"http://127.0.0.1:9/{arrived.path}?k={arrived.headers.get('Authorization')}"}, {}
    if b"other" in arrived.body:
        said["model"] = shown(arrived)
    if "messages" in arrived.path:
        return {
            **said,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3},
        }
    if b"Rate" in arrived.body or b"score" in arrived.body:
        text = '{"score": 7}'
    return {**said, "choices": [{"text": text, "message": {"content": text}, "finish_reason": "stop"}]}


TASK = {"task": "t", "dataset_path": "json", "test_split": "test", "output_type": "generate_until", "doc_to_text": "q",
        "doc_to_target": "gold", "metric_list": [{"metric": "exact_match"}]}  # fmt: skip

TASK_LINES = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"


class World(NamedTuple):
    """What a way needs to know: the server's address, a folder for its files, and its secret."""

    url: str
    folder: Path
    secret: str

    def model(self, **more: object) -> list[object]:
        """The flags of a model of this server, as JSON."""
        return [
            "--model",
            "openai-chat",
            "--model_args",
            json.dumps({"model": "m", "base_url": self.url, "max_retries": 1, **more}),
        ]

    def pairs(self, *more: str, model: str = "openai") -> list[object]:
        """The flags of a model of this server, as lm-eval's users write them."""
        return ["--model", model, "--model_args", ",".join(["model=m", f"base_url={self.url}", "max_retries=1", *more])]

    def task(self, **more: object) -> list[object]:
        """A change of the task, and the model's flags."""
        write_yaml(self.folder / "t.yaml", {**json.loads((self.folder / "t.yaml").read_text()), **more})
        return self.model()


Way = Callable[[World], list[object]]


def with_user(url: str, secret: str) -> str:
    from urllib.parse import quote

    return url.replace("http://", f"http://me:{quote(secret, safe='')}@")


def config(world: World, **more: object) -> list[object]:
    return ["--config", write_yaml(world.folder / "options.json", more)]


def judged(world: World, role: object = None, **kwargs: object) -> list[object]:
    flags = world.task(scorer={"type": "llm_judge", "kwargs": kwargs})
    return flags if role is None else [*flags, "--model_role", role]


WAYS: dict[str, Way] = {
    "api_key as a pair": lambda world: world.pairs(f"api_key={world.secret}"),
    "api_key in quotes": lambda world: world.pairs(f"api_key='{world.secret}, {world.secret}'"),
    "api_key in JSON": lambda world: world.model(api_key=world.secret),
    "api_key of Anthropic": lambda world: world.pairs(f"api_key={world.secret}", model="anthropic"),
    "api_key of LiteLLM": lambda world: world.pairs(f"api_key={world.secret}", "model=openai/m", model="litellm"),
    "configuration file": lambda world: config(
        world, model="openai", model_args={"model": "m", "base_url": world.url, "max_retries": 1, "api_key": world.secret}
    ),
    "configuration file, pairs": lambda world: config(
        world, model="openai", model_args=f"model=m,base_url={world.url},max_retries=1,api_key={world.secret}"
    ),
    "role": lambda world: judged(world, f"judge=openai-chat,model=j,base_url={world.url},api_key={world.secret}"),
    "role's header": lambda world: judged(world, f"judge=openai-chat,model=j,base_url={world.url},header={{'X-J': '{world.secret}'}}"),
    "role in a configuration file": lambda world: judged(world) + config(
        world, model_role={"judge": {"model": "openai-chat", "model_args": {"model": "j", "base_url": world.url, "api_key": world.secret}}}
    ),
    "panel of a task": lambda world: judged(
        world, roles={name: f"openai-chat,model={name},base_url={world.url}?sig={world.secret}" for name in ("a", "b")}
    ),
    "header as pairs": lambda world: world.pairs(f"header={{'Ocp-Apim-Subscription': '{world.secret}'}}"),
    "header in JSON": lambda world: world.model(header={"Cookie": f"session={world.secret}; a=b", "X-Goog": world.secret}),
    "user of an address": lambda world: world.model(base_url=with_user(world.url, world.secret)),
    "query of an address": lambda world: world.model(base_url=f"{world.url}?api-version=2024-01-01&sig={world.secret}"),
    "query of an address as pairs": lambda world: world.pairs(f"base_url={world.url}?code={world.secret}"),
    "metadata": lambda world: [*world.model(), "--metadata", json.dumps({"hub_token": world.secret})],
    "gen_kwargs": lambda world: [*world.model(), "--gen_kwargs", json.dumps({"api_key": world.secret})],
    "gen_kwargs, body": lambda world: [*world.model(), "--gen_kwargs", json.dumps({"extra_body": {"auth": {"token": world.secret}}})],
    "gen_kwargs of LiteLLM": lambda world: [
        *world.pairs("model=openai/m", "api_key=abcd", model="litellm"), "--gen_kwargs",
        json.dumps({"aws_secret_access_key": world.secret, "azure_ad_token": world.secret, "extra_headers": {"X-A": world.secret},
                    "vertex_credentials": json.dumps({"private_key": world.secret})}),
    ],
    "generation of a task": lambda world: world.task(generation_kwargs={"until": ["\n"], "extra_body": {"password": world.secret}}),
    "token of data": lambda world: world.task(dataset_kwargs={**data(world), "token": world.secret}),
    "storage of data": lambda world: world.task(
        dataset_kwargs={**data(world), "storage_options": {"key": world.secret, "secret": world.secret, "sas": world.secret}}
    ),
    "metadata of a task": lambda world: world.task(metadata={"version": 1, "api_key": world.secret, "url": f"https://me:{world.secret}@h.example"}),
}  # fmt: skip


def data(world: World) -> dict[str, Any]:
    return {"data_files": {"test": str(world.folder / "t.jsonl")}}


NODE = {"node_type": "llm", "prompt": [{"user": "{q}"}], "output_keys": "answer"}


def graph(world: World, entry: Mapping[str, object] | None = None, **model: object) -> list[object]:
    """A graph instead of the task, whose model is in models.yaml, or in itself."""
    written = {
        "data_config": {"source": {"type": "disk", "file_path": str(world.folder / "t.jsonl")}},
        "graph_config": {
            "nodes": {"ask": {**NODE, "model": {"name": "helper", **model}}},
            "edges": [{"from": "START", "to": "ask"}, {"from": "ask", "to": "END"}],
        },
    }
    write_yaml(world.folder / "graph_config.yaml", written)
    if entry is not None:
        write_yaml(world.folder / "models.yaml", {"helper": entry})
    return ["--tasks", world.folder / "graph_config.yaml"]


def entry(world: World, **more: object) -> dict[str, object]:
    return {"model_type": "vllm", "url": world.url, "model": "m", "max_retries": 1, **more}


WAYS |= {
    "models.yaml": lambda world: graph(world, entry(world, auth_token=world.secret)),
    "models.yaml, address": lambda world: graph(world, entry(world, url=f"{world.url}?sig={world.secret}")),
    "models.yaml, user": lambda world: graph(world, entry(world, url=with_user(world.url, world.secret))),
    "models.yaml, parameters": lambda world: graph(world, entry(world, parameters={"extra_body": {"token": world.secret}})),
    "model in a graph": lambda world: graph(world, **entry(world, auth_token=world.secret)),
    "parameters in a graph": lambda world: graph(world, entry(world), parameters={"api_key": world.secret}),
    "SYGRA_HELPER_TOKEN": lambda world: graph(world, entry(world)),
    "SYGRA_HELPER_URL": lambda world: graph(world, {"model_type": "vllm", "model": "m", "max_retries": 1}),
    "OPENAI_API_KEY": lambda world: world.pairs(),
    "ANTHROPIC_API_KEY": lambda world: world.pairs(model="anthropic"),
    "MY_OWN": lambda world: world.pairs("api_key=env:MY_OWN"),
    "key file": lambda world: world.pairs(f"api_key=file:{write_yaml(world.folder / 'key', world.secret)}"),
    "HTTP_PROXY": lambda world: world.pairs(),
    "HF_TOKEN": lambda world: world.task(process_results=function(world, "raise RuntimeError(repr(os.environ['HF_TOKEN']))")),
    "address in an exception": lambda world: world.task(
        process_results=function(world, f"raise OSError('401 for url: {with_user(world.url, world.secret)}?sig={world.secret}')")
    ),
    "arguments of a plug-in": lambda world: plugin(world, password=world.secret, nested={"clientSecret": world.secret}),
    "panel of a task, nested": lambda world: judged(
        world,
        roles={name: {"model": "openai-chat", "model_args": {"model": name, "base_url": world.url, "header": {"X-J": world.secret}}}
               for name in ("a", "b")},
    ),
    "exception of a metric": lambda world: world.task(
        metadata={"login": {"password": world.secret}}, process_results=function(world, f"raise ValueError({world.secret!r})")
    ),
    "options of trackers": lambda world: [*world.model(), "--wandb_args", f"project=p,api_key={world.secret}"],
}  # fmt: skip
REFUSED: dict[str, Way] = {
    "judge of a task": lambda world: judged(world, judge_model=f"openai-chat,model=j,base_url={world.url},api_key={world.secret}"),
    "judge of a task, as a mapping": lambda world: judged(
        world, judge_model={"model": "openai-chat", "model_args": {"model": "j", "base_url": world.url, "api_key": world.secret}}
    ),
    "several addresses": lambda world: world.model(base_url=[with_user(world.url, world.secret), f"{world.url}?k={world.secret}"]),
    "unknown flag": lambda world: [*world.model(), "--api_key", world.secret],
    "unknown flag with a value": lambda world: [*world.model(), f"--api_key={world.secret}"],
    "slip": lambda world: ["--model", "openai", "--model_args", "model=m", "api_key", world.secret],
    "broken JSON": lambda world: ["--model", "openai", "--model_args", f'{{"model": "m", "api_key": "{world.secret}",}}'],
    "broken configuration file": lambda world: ["--config", broken(world)],
    "mistyped configuration file": lambda world: config(world, model="openai", api_key=world.secret, model_args={"model": "m"}),
    "token of hf": lambda world: ["--model", "hf", "--model_args", f"pretrained=/nowhere,token={world.secret},hf_token={world.secret}"],
    "unknown arguments": lambda world: world.model(aws_secret_access_key=world.secret, client_cert_password=world.secret),
    "mistyped arguments": lambda world: world.model(api_key=[world.secret], header=world.secret),
    "mistyped argument of a plug-in": lambda world: plugin(world, pin_secret=world.secret),
    "invalid address": lambda world: world.model(base_url=f"http://me:{world.secret}@127.0.0.1:99999/v1?k={world.secret}"),
    "dead address": lambda world: world.model(base_url=f"http://me:{world.secret.replace('/', '')}@127.0.0.1:9/v1?k={world.secret}"),
    "signed address of data": lambda world: world.task(
        dataset_kwargs={"data_files": {"test": f"https://me:{world.secret}@h.example/t.jsonl?X-Amz-Signature={world.secret}"}}
    ),
    "address of data": lambda world: world.task(dataset_path=f"https://me:{world.secret}@h.example/t.jsonl?sig={world.secret}", dataset_kwargs={}),
    "mistyped key of a judge": lambda world: judged(world, judge_model={"model": "openai-chat", "model_args": {"api_key": [world.secret, 5]}}),
    "mistyped key of a graph": lambda world: graph(world, entry(world, auth_token=[world.secret, "b"], secret=world.secret)),
}  # fmt: skip
VARIABLES = {
    "HTTP_PROXY": lambda world: with_user("http://127.0.0.1:9", world.secret),
    "SYGRA_HELPER_URL": lambda world: f"{world.url}?sig={world.secret}",
}
"""Ways that are variables of the environment, where the value is not the secret alone."""
NOT_SENT = ("metadata", "token of data", "storage of data", "metadata of a task", "HTTP_PROXY", "HF_TOKEN",
            "address in an exception", "arguments of a plug-in", "options of trackers",
            "exception of a metric")  # fmt: skip
"""Ways that do not lead to the server."""


def broken(world: World) -> Path:
    path = world.folder / "options.json"
    path.write_text(f"model_args: {{api_key: {world.secret}\n  {world.secret}: [\n")
    return path


def function(world: World, line: str) -> str:
    (world.folder / "helper.py").write_text(f"import os\n\n\ndef results(doc, answers):\n    {line}\n")
    return "!function helper.results"


def plugin(world: World, **arguments: object) -> list[object]:
    (world.folder / "backend.py").write_text(
        "import assay\nfrom assay.models import Scripted\nfrom assay.records import Failed\n\n\n@assay.model('parrot')\n"
        "def parrot(*, password: str = '', nested: dict = {}, pin_secret: int = 0):\n"
        "    def answer(prompt, params, repeat):\n"
        "        if 'plain' not in prompt:\n            raise RuntimeError(f'wrong: {password}')\n        return 'x'\n"
        "    class Parrot(Scripted):\n"
        "        async def answer(self, requests):\n"
        "            refusal = Failed(f'refused {password!r} {nested}')\n"
        "            async for ready in super().answer(requests):\n"
        "                yield [(n, refusal if 'deny' in requests[n].prompt else answered) for n, answered in ready]\n\n"
        "    return Parrot(generate=answer)\n"
    )
    return ["--model", "parrot", "--model_args", json.dumps(arguments), "--plugin", world.folder / "backend.py"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder for files that hold secrets, and one for all that is made; caches are made, too."""
    folder, built = tmp_path / "files", tmp_path / "made"
    built.mkdir()
    rows = "".join(json.dumps({"q": question, "gold": "x"}) + "\n" for question in QUESTIONS)
    write_yaml(folder / "t.yaml", {**TASK, "dataset_kwargs": {"data_files": {"test": str(folder / "t.jsonl")}}})
    (folder / "t.jsonl").write_text(rows)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(built / "index"))
    monkeypatch.setenv("TMPDIR", str(built))
    monkeypatch.setattr("assay.engine.retry.RetryLimits", partial(RetryLimits, attempts=2, first_wait=0.01))
    monkeypatch.chdir(built)
    return folder, built


def commands(flags: list[object], folder: Path, built: Path) -> dict[str, Said]:
    """What the commands print that read files and run a model."""
    catalog = ["--include_path", folder, "--no_defaults"]
    task = flags[flags.index("--tasks") + 1] if "--tasks" in flags else "t"
    options = ["--tasks", task, *catalog, "--log_samples", "-o", built / "run", "--use_cache", built / "cache"]
    return {
        "validate": said_by("validate", *catalog), "ls": said_by("ls", *catalog), "show": said_by("show", task, *catalog),
        "show json": said_by("show", task, "--json", *catalog), "show render": said_by("show", task, "--render", *catalog),
        "dry run": said_by("run", *flags, *options, "--dry_run"),
        "run": said_by("run", *flags, *options, "--show_config", "--write_out"),
        "another": said_by("run", *flags, *options, "--limit", "3"),
    }  # fmt: skip


def check(said: Mapping[str, Said], built: Path, seen: Mapping[str, str]) -> None:
    texts = {name: each.printed + each.logged for name, each in said.items()} | seen
    leaks = {name: where for name, text in texts.items() if (where := leaked(text)) is not None} | leaks_in_files(built)
    assert not [name for name, each in said.items() if "Traceback" in each.printed]
    assert leaks == {}


@pytest.mark.parametrize("way", WAYS)
def test_no_secret_comes_out(way: str, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, built = folders
    with loopback(careless) as (url, arrived):
        world = World(url, folder, canary("s"))
        if way.isupper():
            monkeypatch.setenv(way, VARIABLES.get(way, lambda world: world.secret)(world))
        said = commands(WAYS[way](world), folder, built)
        assert (leaked(repr(arrived)) is None) is (way in NOT_SENT)
    assert said["run"].code == 1, said["run"].printed
    check(said | after_a_run(built), built, pages(built))


@pytest.mark.parametrize("way", REFUSED)
def test_no_secret_is_repeated_where_it_is_refused(way: str, folders: tuple[Path, Path]) -> None:
    folder, built = folders
    with loopback(careless) as (url, _):
        said = commands(REFUSED[way](World(url, folder, canary("s"))), folder, built)
    assert said["run"].code == 2, said["run"].printed
    check(said, built, {})


def evaluated(world: World, built: Path, **more: Any) -> dict[str, Any]:
    model_args = {
        "model": "m",
        "base_url": f"{world.url}?sig={world.secret}",
        "api_key": world.secret,
        "max_retries": 1,
        **more,
    }
    results: dict[str, Any] = assay.simple_evaluate(
        "openai", model_args, tasks=["t"], include_path=str(world.folder), include_defaults=False, log_samples=True,
        output_path=str(built / "run"), gen_kwargs={"extra_body": {"token": world.secret}},
    )  # fmt: skip
    return results


def test_no_secret_comes_out_of_python(folders: tuple[Path, Path]) -> None:
    folder, built = folders
    with loopback(careless) as (url, _):
        world = World(url, folder, canary("s"))
        results = evaluated(world, built)
        with pytest.raises(ConfigError) as refused:
            evaluated(world, built / "other", header=world.secret)
        with pytest.raises(AssayError) as dead:
            evaluated(world._replace(url="http://127.0.0.1:9/v1"), built / "dead")
        model = load_model(
            "openai", {"model": "m", "base_url": with_user(url, world.secret), "header": {"X": world.secret}}
        )
        options = run_config({"tasks": ["t"], "model_args": f"api_key={world.secret}"})
    seen = [results, refused.value, dead.value, model, model.connection, model.http, options]  # type: ignore[union-attr]
    assert [leaked(repr(each) + str(each)) for each in seen] == [None] * len(seen)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert leaks_in_files(built) == {}


def test_shards_and_pairs_of_backends_keep_secrets(folders: tuple[Path, Path]) -> None:
    folder, built = folders
    (folder / "t.jsonl").write_text("".join(json.dumps({"q": f"plain {n}", "gold": "x"}) + "\n" for n in range(4)))
    catalog = ["--tasks", "t", "--include_path", folder, "--no_defaults"]
    with loopback(careless) as (url, _):
        flags = World(url, folder, canary("s")).pairs(f"api_key={canary('s')}", "header={'X': '" + canary("t") + "'}")
        shards = [built / "1", built / "2"]
        said = {n: said_by("run", *flags, *catalog, "--shard", f"{n}/2", "-o", shards[n - 1]) for n in (1, 2)}
        said[3] = said_by("merge", built / "run", *shards)
        backend = f"openai,{flags[3]}"
        said[4] = said_by("verify-backend", backend, backend, *catalog, "-o", built / "verified")
    assert [each.code for each in said.values()] == [0, 0, 0, 0], said
    check({str(name): each for name, each in said.items()} | after_a_run(built), built, pages(built))


def test_no_secret_of_a_command_that_starts_servers_comes_out(folders: tuple[Path, Path]) -> None:
    """Its key is a flag or a variable, and the server prints both before it ends."""
    folder, built = folders
    (folder / "server.py").write_text(
        "import os, sys\nprint(sys.argv, os.environ['HUB_TOKEN'], flush=True)\nsys.exit(3)\n"
    )
    serve = f"HUB_TOKEN={canary('t')} {sys.executable} {folder / 'server.py'} --port {{port}} --api-key {canary('s')}"
    said = commands(["--serve", serve, "--serve_timeout", "20"], folder, built)
    assert "server.py" in said["run"].printed and "***" in said["run"].printed
    check(said, built, {})


def test_a_secret_in_pieces_of_python_is_one_until_it_is_used(folders: tuple[Path, Path]) -> None:
    secret = canary("s")
    settings: Any = Fields.of(
        {"judge": {"model_args": {"api_key": secret, "header": {"X": secret}, "ids": [1]}}, "password": 12345678},
        Origin("t"),
    )
    sent = pickle.loads(pickle.dumps(dict(settings)))  # noqa: S301  # as Ray sends settings to its workers
    copies = [dict(settings), sent, copy.deepcopy(dict(settings))]
    for copied in copies:
        arguments = copied["judge"]["model_args"]
        assert leaked(repr(copied)) is None and "12345678" not in repr(copied)
        assert f"Bearer {arguments['api_key']}" == f"Bearer {secret}"
        assert json.loads(json.dumps(arguments)) == {"api_key": secret, "header": {"X": secret}, "ids": [1]}
        assert reveal(copied) == copied and leaked(repr(reveal(copied))) is not None
        assert plain(copied) == {
            "judge": {"model_args": {"api_key": "***", "header": {"X": "***"}, "ids": [1]}},
            "password": "***",
        }
    seal({"key": "reference_answer"})
    assert conceal("no column 'reference_answer'") == "no column 'reference_answer'"
    usual = {"generation_kwargs": {"until": ["\n"]}, "metadata": {"version": 1}}
    assert seal(usual) is usual and reveal(usual) is usual
    assert leaked(conceal(f"401 for {base64.b64encode(secret.encode()).decode()} and {json.dumps([secret])}")) is None


def test_a_renewed_key_resumes_a_run_and_another_value_of_what_only_sounds_like_one_does_not(
    folders: tuple[Path, Path],
) -> None:
    folder, built = folders
    prompts: list[str] = []

    def evaluate(key: str, token: str) -> None:
        lines = f"metadata: {{version: 1, judge: {{api_key: {key}, header: {{X: {key}}}, token: {token}}}}}\n"
        write_task(folder, [{"q": "plain", "gold": "x"}], TASK_LINES + lines)
        run(folder, noting(prompts), output_path=str(built / "run"))

    evaluate(canary("s"), "yes")
    evaluate(canary("t"), "yes")
    assert len(prompts) == 1
    with pytest.raises(AssayError, match="another run"):
        evaluate(canary("t"), "no")
    assert leaks_in_files(built) == {}


HARMLESS = {
    "max_tokens": 64, "max_gen_toks": 64, "tokens": {"in": 3}, "prefix_token_id": 5, "eos_token": "</s>", "think_end_token": "</think>",
    "golden_key": "answer", "output_keys": ["a"], "model": "turn-key:7b", "name": "monkey", "key_points": "many", "tokenizer": "gpt2",
    "authors": "A. Token", "secretary": "x", "passages": ["key"], "schema": {"properties": {"token": {"type": "string"}}}, "keyed": True,
}  # fmt: skip


def test_numbers_and_harmless_words_stay() -> None:
    assert redact(HARMLESS) == HARMLESS
    words = [
        "--gen_kwargs",
        "max_tokens=64,temperature=0,until=['key:']",
        "-a",
        "model=turn-key:7b,eos_token=</s>",
        "-t",
        "key",
    ]
    assert redact_command(words) == words
    assert redact({"password": 12345678, "api_key": 20240815, "key": 3}) == {
        "password": "***",
        "api_key": "***",
        "key": 3,
    }


def test_an_account_survives_packing_and_importing(folders: tuple[Path, Path]) -> None:
    folder, built = folders
    with loopback(careless) as (url, _):
        flags = World(url, folder, canary("s")).model(api_key=canary("s"))
        said_by("run", *flags, "--tasks", "t", "--include_path", folder, "--no_defaults", "-o", built / "run")
    said_by("pack", built / "run", "-o", built / "run.zip")
    assert said_by("import", built / "run.zip", "-o", built / "again").code == 1  # as the run: documents failed
    before, after = (lm_eval_layout(assay.Run.open(built / name).results) for name in ("run", "again"))
    assert after["assay"]["usage"] == before["assay"]["usage"]
    assert after["assay"]["usage"]["tokens"]["in"] > 0
    assert after["results"] == before["results"]


def test_an_option_that_is_no_secret_is_recorded_whole_and_tells_two_runs_apart(folders: tuple[Path, Path]) -> None:
    folder, built = folders
    write_task(folder, [{"q": "plain", "gold": "x"}], TASK_LINES)
    prompts: list[str] = []
    options: dict[str, Any] = {"output_path": str(built / "run"), "system_instruction": "The key: 5 of us."}
    run(folder, noting(prompts), gen_kwargs="max_tokens=64", **options)
    manifest = json.loads((built / "run/manifest.json").read_text())
    assert manifest["spec"]["gen_kwargs"] == "max_tokens=64"
    assert manifest["spec"]["system_instruction"] == "The key: 5 of us."
    run(folder, noting(prompts), gen_kwargs="max_tokens=64", **options)
    assert len(prompts) == 1
    with pytest.raises(AssayError, match="another run"):
        run(folder, noting(prompts), gen_kwargs="max_tokens=64,temperature=1", **options)
