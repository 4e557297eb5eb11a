"""Keys, headers and queries of addresses: they reach the host that was named, no other, and no file."""

import asyncio
import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.engine.retry import RetryLimits
from assay.errors import ConfigError
from assay.exchange.exporters import export
from assay.models.load import load_model
from assay.models.servers.secrets import hidden_texts
from assay.records import Failed, Generate, Loglikelihood, Request
from assay.report.write import report_text
from commands import Ended, Run, run_command
from serving import Arrived, loopback
from small_runs import write_task
from test_protocols import PLAIN, ask
from test_secrets import unpacked

TASK = "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
BACKENDS: list[tuple[str, dict[str, Any], Request]] = [
    ("openai", {}, Generate("the prompt", PLAIN)),
    ("openai", {"stream": True}, Generate("the prompt", PLAIN)),
    ("openai", {}, Loglikelihood("the prompt", " x")),
    ("openai-chat", {}, Generate("the prompt", PLAIN)),
    ("openai-chat", {"stream": True}, Generate("the prompt", PLAIN)),
    ("anthropic", {}, Generate("the prompt", PLAIN)),
    ("anthropic", {"stream": True}, Generate("the prompt", PLAIN)),
    ("reward-http", {}, Loglikelihood("the prompt", " x")),
    ("litellm", {"model": "openai/m"}, Generate("the prompt", PLAIN)),
    ("litellm", {"model": "anthropic/m"}, Generate("the prompt", PLAIN)),
]


def silent(_: Arrived) -> Any:
    return {"choices": [{"text": "x", "message": {"content": "x"}, "finish_reason": "stop"}]}


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("name", "more", "request_"), BACKENDS)
def test_no_redirect_is_followed(name: str, more: dict[str, Any], request_: Request, status: int) -> None:
    header_options = {} if name == "litellm" else {"header": {"X-Custom-Key": "canary-header-1"}}
    with loopback(silent) as (elsewhere, misdirected):
        other = elsewhere.replace("127.0.0.1", "localhost") + "/next?sig=canary-query"
        with loopback(lambda _: (status, {"Location": other}, {})) as (url, arrived):
            said = ask(name, url, request_, api_key="sk-canary-4711", **header_options, **more)
        assert misdirected == []
    assert len(arrived) == 1
    assert isinstance(said, Failed)
    assert f"HTTP {status}" in said.reason and "redirect" in said.reason and "base_url" in said.reason
    assert "localhost:" in said.reason
    assert "canary" not in said.reason


def test_a_redirect_is_refused_before_the_run_and_the_address_is_named() -> None:
    with loopback(silent) as (elsewhere, misdirected):
        with loopback(lambda _: (307, {"Location": f"{elsewhere}/completions?key=canary"}, {})) as (url, _):
            model: Any = load_model("openai", {"model": "m", "base_url": url})
            with pytest.raises(ConfigError, match=r"redirects to http://127\.0\.0\.1:") as refused:
                asyncio.run(model.greet())
        assert misdirected == []
    assert "canary" not in str(refused.value)


def test_the_servers_tokenizer_and_list_of_models_are_requested_only_from_its_host() -> None:
    def answer(arrived: Arrived) -> Any:
        astray = arrived.path.endswith(("/tokenize", "/models"))
        return (307, {"Location": elsewhere}, {}) if astray else silent(arrived)

    with loopback(silent) as (elsewhere, misdirected), loopback(answer) as (url, arrived):
        model: Any = load_model("openai", {"model": "m", "base_url": url, "header": {"X-Key": "canary-header"}})
        asyncio.run(model.greet())
        assert [each.path for each in arrived if each.method == "GET"] == ["/v1/models"]
        with pytest.raises(ConfigError, match="redirect"):
            ask("openai", url, Loglikelihood("a", "b"), tokenizer_backend="remote")
        assert misdirected == []


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (
            "https://me:pw@other.example:8443/v1/completions?sig=abc#part",
            "to https://other.example:8443/v1/completions;",
        ),
        ("//other.example/v1", "other.example/v1"),
        ("/v1/completions/", "to /v1/completions/;"),
        (None, "an unknown address"),
        ("", "an unknown address"),
        ("http://[::1:80/v1", "an unknown address"),
        ("http://other.example/\x1b[31m", "other.example/?[31m"),
    ],
)
def test_where_a_redirect_leads_is_shown_without_password_and_query(location: str | None, shown: str) -> None:
    from assay.models.servers.http import redirect_message

    message = redirect_message(307, location)
    assert shown in message
    assert not {"pw", "sig", "abc", "\x1b"} & set(message.replace("=", " ").replace("@", " ").replace(":", " ").split())


def test_proxies_and_passwords_of_the_environment_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password canary-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with loopback(silent) as (proxy, at_the_proxy), loopback(silent) as (url, arrived):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert ask("openai", url, Generate("x", PLAIN), header={"X-Key": "canary"}).text == "x"
        assert at_the_proxy == []
    assert "Authorization" not in arrived[0].headers
    assert arrived[0].headers["X-Key"] == "canary"


# what is written down and shown


def canary(name: str) -> str:
    return f"canary{name}0815"


def echoing(arrived: Arrived) -> Any:
    """Answers, or refuses requests with a message that repeats everything it was sent."""
    if b"refuse" in arrived.body:
        return (400, {}, {"error": {"message": f"{'x' * 270} {arrived.path} {dict(arrived.headers)}"}})
    if b"babble" in arrived.body:
        return f"{'x' * 50} {arrived.path} {dict(arrived.headers)}".encode()
    return silent(arrived)


def command(*arguments: object, cwd: Path) -> Ended:
    return run_command(*arguments, cwd=cwd, COLUMNS="400")


def model_args_as_json(url: str, before: str) -> dict[str, Any]:
    headers = {"X-Goog": canary(before + "1"), "Cookie": f"s={canary(before + '2')}; t=1", "api-key": canary(before + "3"),
               "Authorization": f"Bearer {canary(before + '4')}"}  # fmt: skip
    return {"model": "stub", "base_url": f"{url}?sig={canary(before + '5')}&v=1", "header": headers, "max_retries": 1}


def by_arguments(url: str) -> list[object]:
    role = (
        f"judge=openai-chat,model=j,base_url={url}?key={canary('r1')},header={{'X-Goog': '{canary('r2')}', 'Y': 'a b'}}"
    )
    return ["--model", "openai", "--model_args", json.dumps(model_args_as_json(url, "a")), "--model_role", role]


def test_headers_and_queries_of_addresses_are_in_no_file_and_on_no_terminal(tmp_path: Path) -> None:
    arguments, built = tmp_path / "given", tmp_path / "made"
    rows = [{"q": word, "gold": "x"} for word in ("a", "b", "refuse", "babble")]
    write_task(arguments, rows, TASK)
    built.mkdir()
    with loopback(echoing) as (url, arrived):
        options = ["--tasks", "t", "--include_path", arguments, "--no_defaults", "--log_samples", "-o", built / "run"]
        command_line = by_arguments(url)
        ended = [command("run", *command_line, *options, "--show_config", cwd=built)]
        assert (ended[0].returncode, "2 failed" in ended[0].stdout + ended[0].stderr) == (1, True), ended[0].stderr
        asked = len(arrived)
        ended += [
            command("run", *command_line, *options, cwd=built)
        ]  # it is the same run: only what failed is asked again
        assert 0 < sum(b"refuse" in each.body or b"babble" in each.body for each in arrived[asked:]) == 2
        assert not any(b'"a"' in each.body for each in arrived[asked:])
        assert "canary" in str([each.headers for each in arrived]) and "canary" in str([each.path for each in arrived])
    for to in ("lm-eval", "inspect", "parquet"):
        assert export(built / "run", to, built / to)
    for form in ("html", "json", "csv", "md"):
        (built / f"report.{form}").write_text(report_text([built / "run"], form))
    ended.append(command("pack", built / "run", "-o", built / "packed.zip", cwd=built))
    ended.append(command("compare", built / "run", built / "run", cwd=built))
    assert len(list(built.iterdir())) >= 9, list(built.iterdir())
    assert zipfile.is_zipfile(built / "packed.zip")
    assert "canary" not in "".join(each.stdout + each.stderr for each in ended)
    assert "Traceback" not in "".join(each.stderr for each in ended)
    held = [path for path in built.rglob("*") if path.is_file()]
    assert [path for path in held if b"canary" in path.read_bytes() + unpacked(path)] == []
    assert (built / "run/manifest.json").read_text().count("***") > 3


@pytest.mark.parametrize("answer", [(500, {}, {"error": "boom"}), (404, {}, b"<html>"), b"not JSON", {"choices": 5}])
def test_a_query_is_in_no_message_about_a_server_that_does_not_answer_well(
    answer: Any, tmp_path: Path, run_assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path, [{"q": "a", "gold": "x"}], TASK)
    monkeypatch.setattr("assay.engine.retry.RetryLimits", partial(RetryLimits, attempts=2, first_wait=0.01))
    with loopback(lambda _: answer) as (url, _):
        model_args = f"model=m,base_url={url}?sig=canary-query-1,header={{'X': 'canary-header-1'}},max_retries=1"
        options = ["-t", "t", "--include_path", tmp_path, "--no_defaults"]
        ended = run_assay("run", "--model", "openai", "--model_args", model_args, *options)
    assert ended.returncode == 2
    assert "canary" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "url", ["notaurl", "ftp://h/v1", "http:///v1", "http://h:99999/v1", "http://[::1:80/v1", "http://h:x/v1"]
)
def test_an_invalid_address_is_refused_at_once_and_not_repeated(url: str) -> None:
    for written in (url, f"{url}?sig=canary"):
        with pytest.raises(ConfigError, match="invalid server address") as refused:
            load_model("openai", {"model": "m", "base_url": written})
        assert "canary" not in str(refused.value)


def test_a_query_stays_at_the_end_of_the_address() -> None:
    with loopback(silent) as (url, arrived):
        for written in (f"{url}?sig=1&v=2", f"{url}/completions?sig=1&v=2", f"{url}/?sig=1&v=2"):
            ask("openai", written, Generate("x", PLAIN))
    assert {each.path for each in arrived} == {"/v1/completions?sig=1&v=2"}


def test_a_message_that_was_cut_off_within_a_secret_does_not_show_its_beginning() -> None:
    key = "abcdefghijklmnop"
    with loopback(lambda _: f"{'x' * 70}{key}{'y' * 400}".encode()) as (url, _):
        with pytest.raises(Exception, match="not JSON") as error:
            ask("openai", url, Generate("x", PLAIN), api_key=key)
        assert "abcdef" not in str(error.value)
    long = {"choices": [{"message": {"content": None, "refusal": "x" * 275 + key}, "finish_reason": "stop"}]}
    with loopback(lambda _: long) as (url, _):
        assert "abcdef" not in ask("openai-chat", url, Generate("x", PLAIN), api_key=key).reason


@pytest.mark.parametrize(
    "reported",
    [
        {"header": "X-Goog: canary"},
        {"header": ["X-Goog: canary"]},
        {"header": {"X-Goog": ["canary"]}},
        {"header": {"X-Goog": None}},
        {"header": {"X-Goog": 20240815}},
        {"header": {"X-Goog": "canary\r\nX-More: 1"}},
        {"header": {"X Goog": "canary"}},
        {"api_key": 20240815},
        {"api_key": ["canary"]},
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(reported: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_model("openai", {"model": "m", "base_url": "http://127.0.0.1:9/v1", **reported})
    assert "canary" not in str(refused.value) and "2024" not in str(refused.value)


def test_headers_among_the_parameters_of_a_generation_are_written_nowhere(tmp_path: Path) -> None:
    """The way to give LiteLLM headers."""
    write_task(tmp_path, [{"q": "a", "gold": "x"}], TASK)
    with loopback(silent) as (url, arrived):
        results = assay.simple_evaluate(
            "litellm", {"model": "openai/m", "base_url": url, "api_key": "k"}, tasks=["t"], include_path=str(tmp_path),
            include_defaults=False, output_path=str(tmp_path / "run"), log_samples=True,
            gen_kwargs={"extra_headers": {"X-Tenant": "canary-tenant"}, "top_p": 0.5},
        )  # fmt: skip
    assert {name.lower(): value for name, value in arrived[-1].headers.items()}["x-tenant"] == "canary-tenant"
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert "canary" not in str(results)
    assert "0.5" in str(results["samples"])
    held = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert [path for path in held if b"canary" in path.read_bytes() + unpacked(path)] == []


@pytest.mark.parametrize("key", ["'abc CANARY1, CANARY2'", "ab&CANARY1", "ab;CANARY2", "'ab,CANARY5'", '"ab CANARY6"'])
def test_a_key_with_signs_in_it_is_in_no_file_of_its_run(key: str, tmp_path: Path) -> None:
    write_task(tmp_path / "given", [{"q": "a", "gold": "x"}], TASK)
    with loopback(silent) as (url, arrived):
        model_args = f"model=m,base_url={url},api_key={key}"
        options = ["-t", "t", "--include_path", tmp_path / "given", "--no_defaults", "-o", tmp_path / "run"]
        ended = command("run", "--model", "openai", "--model_args", model_args, *options, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "CANARY" in arrived[-1].headers["Authorization"]
    ended = command("pack", tmp_path / "run", "-o", tmp_path / "packed.zip", cwd=tmp_path)
    (tmp_path / "report.html").write_text(report_text([tmp_path / "run"], "html"))
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "run/manifest.json" in held and tmp_path / "packed.zip" in held
    assert [path for path in held if b"CANARY" in path.read_bytes() + unpacked(path)] == []


ESCAPED = ['CANARYh1 "q"', 'CANARYk"1\\2', "CANARY\\\\x", "CANARY'1\"2"]


def as_json(headers: Any) -> str:
    return json.dumps(dict(headers))


def as_json_in_json(headers: Any) -> Any:
    return {"error": {"message": json.dumps(dict(headers))}}


def as_json_twice(headers: Any) -> Any:
    return {"error": {"message": json.dumps({"sent": json.dumps(dict(headers))})}}


def as_mapping(headers: Any) -> Any:
    return {"error": {"message": dict(headers)}}


@pytest.mark.parametrize("show", [as_json, as_json_in_json, as_json_twice, as_mapping])
@pytest.mark.parametrize("status", [400, 401])
@pytest.mark.parametrize("value", ESCAPED)
def test_a_secret_that_a_server_shows_as_json_is_blotted_out(
    value: str, status: int, show: Callable[[Any], Any]
) -> None:
    def answer(arrived: Arrived) -> Any:
        shown = show({key: each for key, each in arrived.headers.items() if key in ("Authorization", "X-A")})
        return status, {}, shown.encode() if isinstance(shown, str) else shown

    with loopback(answer) as (url, arrived):
        by_header = ask("openai", url, Generate("q", PLAIN), header={"X-A": value})
        by_key = ask("openai", url, Generate("q", PLAIN), api_key=value)
    assert arrived[0].headers["X-A"] == value and arrived[1].headers["Authorization"] == f"Bearer {value}"
    for said in (by_header, by_key):
        assert f"HTTP {status}" in said.reason and "***" in said.reason
        assert "CANARY" not in said.reason


def test_forms_of_a_secret_are_hidden_in_other_alphabets_too() -> None:
    assert {"schlüssel", "schl\\u00fcssel"} <= set(hidden_texts(["schlüssel"], []))
