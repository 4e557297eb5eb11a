"""A model behind a server is known by its name and by what it says to a probe, not by its address."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import AssayError
from assay.models.load import load_model
from run_world import failed_in
from serving import TALKING, Arrived, Servers, fetched, loopback
from small_runs import write_task

TASK = (
    "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\ngeneration_kwargs: {temperature: 0, until: []}\n"
)
ROWS = [{"q": f"question {number}.", "gold": "x"} for number in range(6)]


@pytest.fixture
def servers() -> Iterator[Servers]:
    built = Servers()
    yield built
    built.end()


def run(folder: Path, url: str, output: Path | None, name: str = "openai-chat", **options: Any) -> dict[str, Any]:
    args = {"model": "m", "base_url": url, "max_retries": 1, **options.pop("model_args", {})}
    return assay.simple_evaluate(
        name, args, tasks=["t"], include_path=str(folder), include_defaults=False,
        output_path=str(output) if output is not None else None, **options,
    )  # fmt: skip


def requests(url: str) -> int:
    """How many requests reached a stub, but for the probe, which is asked twice."""
    return int(fetched(url, "/stats")["requests"]) - 2


def asked(log: list[Arrived]) -> int:
    return sum(each.method == "POST" and b"quick brown fox" not in each.body for each in log)


def says(text: str) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return lambda arrived: {"choices": [choice], "data": []}


def manifest(output: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return data


@pytest.mark.parametrize("name", ["openai-chat", "openai"])
def test_a_run_resumes_on_a_server_that_moved(name: str, tmp_path: Path, servers: Servers) -> None:
    write_task(tmp_path, ROWS, TASK)
    first = servers("--fail-if", "question 3.")
    results = run(tmp_path, first, tmp_path / "run", name)
    assert failed_in(results) == 1
    servers.end()
    second = servers()
    results = run(tmp_path, second, tmp_path / "run", name)
    assert failed_in(results) == 0
    assert requests(second) == 1, "the one that failed"
    servers.end()
    third = servers()
    run(tmp_path, third, tmp_path / "run", name)
    assert requests(third) == 0
    assert manifest(tmp_path / "run")["model"]["addresses"] == [first, second, third]


def test_a_run_without_its_own_folder_resumes_at_another_address(tmp_path: Path, servers: Servers) -> None:
    write_task(tmp_path, ROWS, TASK)
    runs = {"runs_dir": str(tmp_path / "runs"), "limit": 6}
    run(tmp_path, servers("--fail-if", "question 3."), None, **runs)
    second = servers()
    run(tmp_path, second, None, **runs)
    assert requests(second) == 1
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("is_moved", [True, False])
def test_another_model_is_refused_at_the_same_address_and_at_another(is_moved: bool, tmp_path: Path, servers: Servers) -> None:  # fmt: skip
    write_task(tmp_path, ROWS, TASK)
    first = servers("--answer", "one")
    run(tmp_path, first, tmp_path / "run")
    before = (tmp_path / "run" / "responses.jsonl").read_bytes()
    servers.end()
    port = None if is_moved else int(first.removesuffix("/v1").rpartition(":")[2])
    second = servers("--answer", "two", port=port)
    with pytest.raises(AssayError) as refused:
        run(tmp_path, second, tmp_path / "run")
    for part in (
        f"openai-chat m at {first} there",
        f"openai-chat m at {second} here",
        "its response to the probe was 'one' and is now 'two'",
    ):
        assert part in str(refused.value)
    assert requests(second) == 8, "the probe again: it might have been chance"
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == before
    run(tmp_path, second, tmp_path / "run", force=True)
    assert requests(second) == 8 + 2 + 8 + len(ROWS)


def test_the_cache_has_the_answers_of_a_server_that_moved_and_none_of_another_model(tmp_path: Path, servers: Servers) -> None:  # fmt: skip
    write_task(tmp_path, ROWS, TASK)
    cache = str(tmp_path / "cache")
    run(tmp_path, servers("--answer", "one"), None, use_cache=cache)
    same, other = servers("--answer", "one"), servers("--answer", "two")
    run(tmp_path, same, None, use_cache=cache)
    assert requests(same) == 0
    run(tmp_path, other, None, use_cache=cache)
    assert requests(other) == len(ROWS)


def test_a_model_that_does_not_say_the_same_twice_is_known_by_its_address(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS[:1], TASK)
    numbers_said = count()

    def varies(arrived: Arrived) -> Any:
        return says(f"{next(numbers_said)}")(arrived)

    with loopback(varies) as (first, log):
        run(tmp_path, first, tmp_path / "run")
        run(tmp_path, first, tmp_path / "run")
        assert asked(log) == 1
        with loopback(varies) as (second, _), pytest.raises(AssayError, match="identified by its address only"):
            run(tmp_path, second, tmp_path / "run")


def test_a_rare_different_probe_answer_is_probed_again_before_the_model_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS[:2], TASK)
    answers = iter([*"aa", *"bb", *"ca", *"bbbbbbbbbb"])

    def seldom(arrived: Arrived) -> Any:
        return says(next(answers) if b"quick brown fox" in arrived.body else "x")(arrived)

    with loopback(seldom) as (url, log):
        run(tmp_path, url, tmp_path / "run")
        run(tmp_path, url, tmp_path / "run")
        assert asked(log) == 2, "it said the same at the second attempt"
        with pytest.raises(AssayError, match="its response to the probe was 'a' and is now 'b'"):
            run(tmp_path, url, tmp_path / "run")
        assert next(answers, None) is None, "it was asked twice, and four times twice again"


def test_the_probe_at_a_providers_address_is_the_short_one() -> None:
    hosted: Any = load_model("openai-chat", {"model": "m", "api_key": "k"})
    own: Any = load_model("openai-chat", {"model": "m", "api_key": "k", "base_url": "http://127.0.0.1:1/v1"})
    assert hosted.probed["asked"] == "The quick brown fox jumps over the lazy"
    assert own.probed["asked"] != hosted.probed["asked"]


def test_a_judge_that_moved_is_the_same_judge_and_another_is_refused(tmp_path: Path, servers: Servers) -> None:
    rows = [{"q": json.dumps({"say": json.dumps({"score": score})}), "gold": "x"} for score in (7, 9)]
    write_task(tmp_path, rows, f"{TASK}scorer: llm_judge\n")

    def judged(url: str, judge: str) -> dict[str, Any]:
        role = {"judge": f"openai-chat,model=j,base_url={judge}"}
        return run(tmp_path, url, tmp_path / "run", model_role=role)

    def sent(url: str) -> int:
        return sum("quick brown fox" not in json.dumps(each["body"]) for each in fetched(url, "/log"))

    model, judge = servers(script=TALKING), servers(script=TALKING)
    before = judged(model, judge)["results"]
    assert (sent(model), sent(judge)) == (2, 2)
    servers.end()
    model, judge = servers(script=TALKING), servers(script=TALKING)
    assert judged(model, judge)["results"] == before
    assert (sent(model), sent(judge)) == (0, 0)
    with (
        loopback(says("another judge")) as (other, _),
        pytest.raises(AssayError, match="another judge: openai-chat j at"),
    ):
        judged(model, other)


def test_addresses_are_recorded_without_what_is_secret(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS[:1], TASK)
    with loopback(says("x")) as (url, _):
        address = url.replace("http://", "http://anna:geheim@") + "?token=versteckt"
        run(tmp_path, address, tmp_path / "run")
    noted = manifest(tmp_path / "run")["model"]
    assert noted["addresses"] == [url]
    assert noted["probe"]["said"] == "x"
    assert "127.0.0.1" not in noted["identity"]
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert not any(secret in text for secret in ("anna", "geheim", "versteckt"))
