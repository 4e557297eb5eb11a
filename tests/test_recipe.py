"""The recipe for a backend, as the docs have it, against a server that speaks that protocol."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

import assay
from assay.models.load import BACKENDS
from small_runs import write_task

PAGE = Path(__file__).parent.parent / "docs/backends.md"


class Handler(BaseHTTPRequestHandler):
    """An Ollama that says how long the prompt was, and fails the first time it is asked."""

    asked: list[Any] = []  # noqa: RUF012  # of the test's one server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the library's name
        body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        said = f"{len(body['messages'][0]['content'])}\n\nand more"
        answer = {"message": {"content": said}, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 2}
        self.send_response(500 if len(self.asked) == 1 else 200)
        data = orjson.dumps(answer)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_recipe_works_as_it_is_printed(url: str, tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 40
    try:
        exec(code, {"__name__": "recipe"})
        write_task(
            tmp_path, [{"q": "abcd", "gold": "4"}], "output_type: generate_until\ndoc_to_text: q\ndoc_to_target: gold\n"
        )
        results = assay.simple_evaluate(
            "ollama", {"model": "m", "base_url": url, "price_in": 1.0, "price_out": 1.0}, tasks=["t"],
            include_path=str(tmp_path), include_defaults=False,
        )  # fmt: skip
    finally:
        BACKENDS.pop("ollama", None)
    assert results["results"]["t"]["exact_match,none"] == 1.0
    assert results["assay"]["usage"]["tokens"] == {"in": 9, "out": 2}
    assert Handler.asked[-1]["options"] == {"temperature": 0.0, "num_predict": 256, "stop": ["\n\n"]}
