"""Models by role: one engine, one journal, each request to the model it names."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.engine import Ended, Engine, Started
from assay.engine.drive import RequestCounts
from assay.errors import ConfigError
from assay.models import Scripted
from assay.models.load import load_model
from assay.records import Generate, Plan, Text
from assay.runs.journal import Journal
from serving import TALKING, Servers, fetched
from small_runs import write_task

PLAIN = {"max_gen_toks": 64, "do_sample": False, "until": []}


@pytest.fixture
def talking() -> Iterator[str]:
    servers = Servers()
    yield servers(script=TALKING)
    servers.end()


def judged(question: str) -> Plan:
    """A plan that asks the model, and then a judge about what it said."""
    [answer] = yield [Generate(question, PLAIN)]
    assert isinstance(answer, Text)
    verdict = yield [Generate(json.dumps({"say": f"{answer.text} is good"}), PLAIN, role="judge")]
    return verdict


def drive(models: dict[str, Any], journal: Journal, count: int) -> tuple[Engine, list[str]]:
    said: dict[int, str] = {}

    def end(ended: Ended) -> None:
        said[ended.what] = getattr(ended.responses[0], "text", "")

    async def work() -> Engine:
        engine = Engine(models, journal)
        await engine.run((Started(n, b"%d" % n, judged(f"q{n}"), "t") for n in range(count)), end)
        return engine

    return asyncio.run(work()), [said[number] for number in range(count)]


def test_a_local_model_and_a_server_work_in_one_run(talking: str, tmp_path: Path) -> None:
    local = Scripted(generate=lambda prompt, params, repeat: prompt.upper())
    judge = load_model("openai-chat", {"model": "m", "base_url": talking, "price_in": 1.0, "price_out": 1.0})
    journal = Journal(tmp_path / "journal")
    engine, said = drive({"model": local, "judge": judge}, journal, 40)
    assert said == [f"Q{n} is good" for n in range(40)]
    assert len(journal) == 80
    assert engine.usage.to_json()["requests"] == 40
    assert set(engine.usage.roles) == {"judge"}
    before = len(fetched(talking, "/log"))
    again, said = drive({"model": local, "judge": judge}, journal, 40)
    assert said == [f"Q{n} is good" for n in range(40)]
    assert len(fetched(talking, "/log")) == before  # nothing was asked twice
    assert (again.counts.known, again.counts.sent) == (80, 0)
    journal.close()


def test_two_servers_each_get_what_is_theirs(talking: str) -> None:
    servers = Servers()
    other = servers(script=TALKING)
    try:
        models = {
            "model": load_model("openai-chat", {"model": "m", "base_url": talking}),
            "judge": load_model("openai-chat", {"model": "m", "base_url": other}),
        }
        journal = Journal(None)
        _, said = drive(models, journal, 10)
        journal.close()
        assert said == ["hello is good"] * 10
        assert (len(fetched(talking, "/log")), len(fetched(other, "/log"))) == (10, 1)  # the judge is asked one thing
    finally:
        servers.end()


def test_roles_are_given_by_name_and_noted(talking: str, tmp_path: Path) -> None:
    write_task(
        tmp_path, [{"q": "a", "gold": "a"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
    )
    model = Scripted(generate=lambda prompt, params, repeat: "a")
    known = {"include_path": str(tmp_path), "include_defaults": False, "output_path": str(tmp_path / "run")}
    judge = {"judge": f"openai-chat,model=m,base_url={talking},api_key=sk-canary-0815"}
    assay.simple_evaluate(model, tasks=["t"], model_role=judge, **known)
    manifest = (tmp_path / "run/manifest.json").read_text()
    assert json.loads(manifest)["roles"]["judge"]["args"]["model"] == "m"
    assert "canary" not in manifest
    with pytest.raises(ConfigError, match="invalid role name"):
        assay.simple_evaluate(model, tasks=["t"], model_role={"model": "dummy"}, **known)
    with pytest.raises(ConfigError, match="no model named"):
        assay.simple_evaluate(model, tasks=["t"], model_role={"judge": "opnai"}, **known)


@pytest.mark.parametrize("is_told", [True, False])
def test_progress_is_told_while_answers_arrive_to_who_wants_to_know(is_told: bool, tmp_path: Path) -> None:
    told: list[int] = []
    model = Scripted(generate=lambda prompt, params, repeat: time.sleep(0.12) or "x")  # type: ignore[func-returns-value]

    def plan(prompt: str) -> Plan:
        return (yield [Generate(prompt, {})])

    async def work() -> None:
        notice = (lambda: told.append(engine.counts.sent)) if is_told else None
        engine = Engine({"model": model}, Journal(tmp_path / "journal"), notice)
        await engine.run((Started(n, b"%d" % n, plan(f"q{n}"), "t") for n in range(4)), lambda _: None)
        assert engine.counts == RequestCounts(asked=4, sent=4, known=0, failed=0)

    asyncio.run(work())
    assert (len(told) >= 3) == is_told
