"""Keys, headers and queries of addresses: they reach the host that was named, no other, and no file."""

import asyncio
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.models.load import load_model
from assay.records import Failed, Generate, Loglikelihood, Request
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
    told = {} if name == "litellm" else {"header": {"X-Custom-Key": "canary-header-1"}}
    with loopback(silent) as (elsewhere, gone_astray):
        other = elsewhere.replace("127.0.0.1", "localhost") + "/next?sig=canary-query"
        with loopback(lambda _: (status, {"Location": other}, {})) as (url, arrived):
            said = ask(name, url, request_, api_key="sk-canary-4711", **told, **more)
        assert gone_astray == []
    assert len(arrived) == 1
    assert isinstance(said, Failed)
    assert f"HTTP {status}" in said.reason and "redirect" in said.reason and "base_url" in said.reason
    assert "localhost:" in said.reason
    assert "canary" not in said.reason


def test_a_redirect_is_refused_before_the_run_and_the_address_is_named() -> None:
    with loopback(silent) as (elsewhere, gone_astray):
        with loopback(lambda _: (307, {"Location": f"{elsewhere}/completions?key=canary"}, {})) as (url, _):
            model: Any = load_model("openai", {"model": "m", "base_url": url})
            with pytest.raises(ConfigError, match="redirects to http://127.0.0.1:") as refused:
                asyncio.run(model.greet())
        assert gone_astray == []
    assert "canary" not in str(refused.value)


def test_the_servers_tokenizer_and_list_of_models_are_not_looked_for_elsewhere() -> None:
    def answer(arrived: Arrived) -> Any:
        astray = arrived.path.endswith(("/tokenize", "/models"))
        return (307, {"Location": elsewhere}, {}) if astray else silent(arrived)

    with loopback(silent) as (elsewhere, gone_astray), loopback(answer) as (url, arrived):
        model: Any = load_model("openai", {"model": "m", "base_url": url, "header": {"X-Key": "canary-header"}})
        asyncio.run(model.greet())
        assert [each.path for each in arrived if each.method == "GET"] == ["/v1/models"]
        with pytest.raises(ConfigError, match="redirect"):
            ask("openai", url, Loglikelihood("a", "b"), tokenizer_backend="remote")
        assert gone_astray == []


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://me:pw@other.example:8443/v1/completions?sig=abc#part", "to https://other.example:8443/v1/completions,"),
        ("//other.example/v1", "other.example/v1"),
        ("/v1/completions/", "to /v1/completions/,"),
        (None, "does not name"),
        ("", "does not name"),
        ("http://[::1:80/v1", "does not name"),
        ("http://other.example/\x1b[31m", "other.example/?[31m"),
    ],
)
def test_where_a_redirect_leads_is_shown_without_password_and_query(location: str | None, shown: str) -> None:
    from assay.models.http import redirected

    found = redirected(307, location)
    assert shown in found
    assert not {"pw", "sig", "abc", "\x1b"} & set(found.replace("=", " ").replace("@", " ").replace(":", " ").split())


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
