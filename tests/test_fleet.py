"""Fleets of replicas on a real Ray cluster of two nodes: equal to one process, whatever backend; what they refuse."""

import asyncio
import copy
import json
import os
import re
import shlex
import shutil
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import ray_world
from tests.ray_world import MODELS, ray_cluster
from tests.run_world import journal, start

import assay
from assay.errors import ConfigError
from assay.exchange.lm_eval_layout import lm_eval_layout
from assay.fleet.replicas import Fleet
from assay.fleet.wire import pack_requests, read_requests
from assay.models.load import BACKENDS, load_model, load_tokenizer
from assay.models.local.embedded import BUNDLED, Embedded
from assay.models.protocol import ReplicaLostError
from assay.records import Generate, Loglikelihood, Message, Request, Rolling

pytestmark = pytest.mark.xdist_group("ray")
__all__ = ["ray_cluster"]
PLUGIN = (str(MODELS),)
TASKS = "first_steps_opposites,first_steps_reversing,first_steps_cloze"


def answers(folder: Path) -> dict[str, Any]:
    """The journal of a run by key; each key once."""
    lines = [each for each in journal(folder) if "k" in each]
    known = {each["k"]: {name: value for name, value in each.items() if name != "c"} for each in lines}
    assert len(known) == len(lines), "a request was answered twice"
    return known


def numbers(results: dict[str, Any]) -> Any:
    return results["results"], results["n-samples"], results["samples"]


@pytest.fixture(scope="module")
def single_process(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("single_process")
    results = assay.simple_evaluate("embedded", tasks=TASKS.split(","), output_path=str(folder), limit=30)
    return numbers(results), answers(folder)


def run(fleet: Fleet, folder: Path, **options: Any) -> dict[str, Any]:
    return assay.simple_evaluate(fleet, tasks=TASKS.split(","), output_path=str(folder), limit=30, **options)  # type: ignore[arg-type]


def test_requests_travel_unchanged() -> None:
    params = {"until": ["\n"], "temperature": 0.5}
    talk = (Message("system", "Be short."), Message("user", "Hi — ü"))
    sent: list[Request] = [
        Generate("a", params, 2, "judge", ("node", "inner"), b"\x00\xffdraw"),
        Generate(talk, params),
        Loglikelihood(talk, " yes"),
        Loglikelihood("a", " no", "other"),
        Rolling("a whole text"),
    ]
    assert read_requests(pack_requests(sent)) == sent


def test_replicas_that_die_in_a_run_change_nothing(
    ray_cluster: Any, tmp_path: Path, single_process: tuple[Any, dict[str, Any]]
) -> None:
    with Fleet("embedded", replicas=3, ray=ray_cluster.address) as fleet:
        victims = [int(each.where["pid"]) for each in fleet._ready[:2]]

        def kill() -> None:
            for pid in victims:
                time.sleep(0.4)
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        results = run(fleet, tmp_path / "run")
        killer.join()
        assert numbers(results) == single_process[0]
        assert answers(tmp_path / "run") == single_process[1]
        again = run(fleet, tmp_path / "again")  # the same fleet, with replaced replicas
        assert numbers(again) == single_process[0]
        assert {each.where["pid"] for each in fleet._ready}.isdisjoint(victims[:1])


TALK = (Message("system", "w4"), Message("user", "w5 w6"), Message("assistant", "w7"), Message("user", "w8 — ü"))
TEMPLATE = "{% for m in messages %}{{ bos_token }} {{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}w9{% endif %}"


def same_tokenizer(fleet: Fleet, model: Any) -> None:
    """The fleet renders and counts as the model in one process, without asking a replica."""
    assert fleet._tokenizer is not None
    asked: list[str] = []
    fleet._describe = lambda method, *_: asked.append(method)  # type: ignore[method-assign,assignment,func-returns-value]
    for number in range(200):
        talk = (*TALK, Message("user", f"w{number}"))
        opened = number % 2 == 0
        assert fleet.chat_template(talk, opened) == model.chat_template(talk, opened)
        assert fleet.count_tokens(f"{number} w3  w4\n<s> ü") == model.count_tokens(f"{number} w3  w4\n<s> ü")
    assert not asked
    del fleet._describe


def test_hf_answers_in_an_actor_as_here(ray_cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.hf_world import build, words

    folder = tmp_path / "model"
    build("llama").save_pretrained(folder)
    tokenizer = copy.deepcopy(words(begins=True))
    tokenizer.chat_template = {"default": TEMPLATE, "other": f"w11 {TEMPLATE}"}
    tokenizer.save_pretrained(folder)
    arguments = {"pretrained": str(folder), "dtype": "float32", "device": "cpu"}
    options: dict[str, Any] = {"tasks": ["first_steps_opposites"], "limit": 12, "apply_chat_template": True}
    with ThreadPoolExecutor(1) as pool, closing(Fleet("hf", arguments, replicas=1, ray=ray_cluster.address)) as fleet:
        opening = pool.submit(fleet.open)  # importing torch takes long, here and there
        here = assay.simple_evaluate("hf", arguments, output_path=str(tmp_path / "here"), **options)
        opening.result()
        there = assay.simple_evaluate(fleet, output_path=str(tmp_path / "there"), **options)  # type: ignore[arg-type]
        assert fleet.precision == "float32"
        model: Any = load_model("hf", arguments)
        assert fleet.identity == model.identity
        same_tokenizer(fleet, model)
        for each in (fleet, model):
            each.use_template("other")
        assert str(fleet.chat_template(TALK, True)).startswith("w11 ")
        same_tokenizer(fleet, model)
    assert there["results"] == here["results"]
    assert answers(tmp_path / "there").keys() == answers(tmp_path / "here").keys()


def test_the_tokenizer_is_that_of_the_replicas(ray_cluster: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED, folder)
    with Fleet("embedded", {"path": str(folder)}, replicas=1, ray=ray_cluster.address) as fleet:
        model: Any = load_model("embedded", {"path": str(folder)})
        before = model.chat_template(TALK, True)
        same_tokenizer(fleet, model)
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": "another"}))
        assert load_model("embedded", {"path": str(folder)}).chat_template(TALK, True) == "another"
        del fleet._tokenizer  # as if it had not been needed before
        assert fleet.chat_template(TALK, True) == before
        shutil.rmtree(folder)
        del fleet._tokenizer
        assert fleet.chat_template(TALK, True) == before
        assert fleet.count_tokens("w3 w4") == model.count_tokens("w3 w4")


def test_what_a_backend_inherits_may_not_be_its_tokenizer() -> None:
    class Shouting(Embedded):
        def chat_template(self, messages: tuple[Message, ...], add_generation_prompt: bool) -> str:
            return super().chat_template(messages, add_generation_prompt).upper()

    BACKENDS["shouting"] = Shouting
    try:
        assert load_tokenizer("shouting", {}) is None
    finally:
        del BACKENDS["shouting"]
    assert load_tokenizer("embedded", {}) is not None


@pytest.mark.process
def test_the_command_line_and_a_role_with_replicas_on_this_machine(tmp_path: Path) -> None:
    """The model's replicas share out the CPUs; those of the judge have a place nevertheless."""
    done = ray_world.assay(
        "run", "-t", "first_steps_opposites", "--limit", 10, "--model", "embedded", "--replicas", 2, "--model_role",
        "judge=embedded,replicas=2", "-o", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    here = assay.simple_evaluate("embedded", tasks=["first_steps_opposites"], limit=10)["results"]
    assert lm_eval_layout(assay.Run.open(tmp_path / "run").results)["results"] == here
    assert "ray" not in done.stderr.lower()


@pytest.mark.parametrize("is_lost", ["false", "true"])
def test_a_poison_request_fails_alone(is_lost: str, ray_cluster: Any, tmp_path: Path) -> None:
    done = ray_world.assay(
        "run", "-t", "first_steps_opposites", "--model", "fleet-poison", "--model_args", f"word=hot is cold,is_lost={is_lost}",
        "--replicas", 2,
        "--ray", ray_cluster.address, "--plugin", MODELS, "-o", tmp_path / "run",
    )  # fmt: skip
    lines = [each for each in journal(tmp_path / "run") if "k" in each]
    failed = [each["r"]["failed"] for each in lines if isinstance(each["r"], dict)]
    assert len(lines) == 240, done.stderr  # four choices of each of 60
    assert len(failed) == 1  # "The opposite of hot is" with " cold"
    assert "3 replicas ended while they answered it" in failed[0]
    loss = r"^replica \d+ \(pid \d+ on \S+\) ended(?:; its \d+ requests? (?:are|is) asked again)?$"
    losses = re.findall(loss, done.stderr, re.MULTILINE)
    assert len(losses) == len(set(losses)) == 3, done.stderr
    assert not re.search("raylet|worker died", done.stdout + done.stderr)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_of_a_fleet_and_the_command_that_resumes_is_printed(
    number: int, expected: int, ray_cluster: Any, tmp_path: Path
) -> None:
    """Ray has its handlers for signals, which print a stack and exit with 15."""
    command = [
        "run", "-t", "first_steps_opposites", "--model", "fleet-slow", "--model_args", "seconds=0.1", "--plugin", str(MODELS),
        "--replicas", "1", "--ray", ray_cluster.address, "-o", "run",
    ]  # fmt: skip
    begun = start("-m", "assay", *command, cwd=tmp_path)
    journaled = tmp_path / "run/responses.jsonl"
    until(lambda: begun.poll() is not None or (journaled.exists() and journaled.read_bytes().count(b"\n") > 3))
    begun.send_signal(number)
    said = "".join(begun.communicate(timeout=120))
    assert begun.returncode == expected, said
    assert "Traceback" not in said
    assert "stopped; resume with" in said
    known = answers(tmp_path / "run")
    assert 0 < len(known) < 240
    if number == signal.SIGINT:
        return
    resume = shlex.split(said[said.index("assay run") :].splitlines()[0])[1:]
    done = ray_world.assay(*resume, "--model_args", "seconds=0.0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(answers(tmp_path / "run")) == 240


def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_replicas_with_other_weights_are_refused_before_anything_is_asked(ray_cluster: Any, tmp_path: Path) -> None:
    fleet = Fleet("fleet-drifting", replicas=2, ray=ray_cluster.address, plugins=PLUGIN)
    with pytest.raises(ConfigError, match="has another model than the others: drifting"):
        assay.simple_evaluate(fleet, tasks=["first_steps_opposites"], output_path=str(tmp_path / "run"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def _unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["openai", {"model": "x", "base_url": "http://localhost:1"}], {"replicas": 2}), "servers need no fleet"),
        ((["embedded"], {"replicas": 0}), "must be a positive number or auto"),
        ((["embedded"], {"replicas": "many"}), "must be a positive number or auto"),
        ((["embedded", {"data_parallel_size": 2}], {"replicas": 3}), "exclude each other"),
        ((["embedded", {"data_parallel_size": 0}], {}), "must be a positive number"),
        ((["embedded"], {"gpus_per_replica": 1}), "needs replicas"),
        ((["embedded"], {"replicas": 1, "ray": "ray://somewhere:10001"}), "HOST:6379"),
        ((["embedded"], {"replicas": 1, "ray": "somewhere"}), "is not an address"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[list[Any], dict[str, Any]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        assay.simple_evaluate(*arguments[0], tasks=["first_steps_opposites"], **arguments[1])


def test_an_address_where_nothing_listens_is_refused_within_seconds() -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="no Ray cluster at"):
        Fleet("embedded", replicas=1, ray=f"127.0.0.1:{_unused_port()}").open()
    assert time.monotonic() - begun < 60  # Ray itself tries for minutes


def test_problems_of_a_model_are_those_of_one_process(ray_cluster: Any) -> None:
    def refused(model: Any, **options: Any) -> list[str]:
        with pytest.raises(ConfigError) as raised:
            assay.simple_evaluate(model, tasks=["first_steps_opposites"], **options)
        return [str(each) for each in raised.value.problems]

    wrong = {"pth": "nowhere"}
    assert refused(Fleet("embedded", wrong, replicas=2, ray=ray_cluster.address)) == refused(
        "embedded", model_args=wrong
    )
    too_many = Fleet("embedded", replicas=1, gpus_per_replica=1, ray=ray_cluster.address)
    assert "no machine of the cluster has space for a replica with 1 GPUs" in refused(too_many)[0]
    with pytest.raises(ConfigError, match="a model object has no replicas"):
        assay.simple_evaluate(assay.Scripted(), tasks=["first_steps_opposites"], replicas=2)


def test_auto_fills_the_cluster_and_a_node_that_joins(tmp_path: Path) -> None:
    with ray_world.cluster(nodes=1, num_cpus=1) as single:
        with Fleet("fleet-slow", {"seconds": 0.02}, ray=single.address, plugins=PLUGIN) as fleet:
            fleet.open()
            assert len(fleet._ready) == 1
            joined = single.add_node(num_cpus=2, object_store_memory=ray_world.STORE)
            assay.simple_evaluate(
                fleet,  # type: ignore[arg-type]
                tasks=["first_steps_opposites", "first_steps_word_classes", "first_steps_sorting"],
                output_path=str(tmp_path / "run"),
            )
            assert len(fleet._ready) == 3
            assert_losses_differ(fleet, single, joined)
        assert answers(tmp_path / "run")


def assert_losses_differ(fleet: Fleet, cluster: Any, node: Any) -> None:
    """A process that is killed, and the machine of another: a request can be the cause of the first alone."""
    raylet = node.all_processes["raylet"][0].process.pid
    parents = {each: int(Path(f"/proc/{each.where['pid']}/stat").read_text().split()[3]) for each in fleet._ready}
    process, other = (each for each, parent in parents.items() if parent == raylet)

    async def lost(replica: Any, strike: Callable[[], object]) -> bool:
        asked = [Generate("question", {})] * 500
        with pytest.raises(ReplicaLostError) as error:
            async for number, answered in aenumerate(replica.answer(asked, reports_begin=True)):
                assert bool(answered) == bool(number), "it reports that it begins, then answers"
                if number == 1:
                    strike()
        return error.value.machine

    assert not asyncio.run(lost(process, lambda: os.kill(process.where["pid"], signal.SIGKILL)))
    assert asyncio.run(lost(other, lambda: cluster.remove_node(node, allow_graceful=False)))


async def aenumerate(items: AsyncIterator[Any]) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for item in items:
        yield number, item
        number += 1
