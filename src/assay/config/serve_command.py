"""The command of `--serve`: its words, where the port goes, and the GPUs and the key that its flags name."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from assay.errors import ConfigError

PORT, HOST = "{port}", "{host}"
KNOWN: dict[tuple[str, ...], tuple[str, str]] = {
    ("vllm", "serve"): ("--port", "--host"),
    ("-m", "vllm.entrypoints.openai.api_server"): ("--port", "--host"),
    ("sglang", "serve"): ("--port", "--host"),
    ("-m", "sglang.launch_server"): ("--port", "--host"),
    ("llama-server",): ("--port", "--host"),
    ("-m", "llama_cpp.server"): ("--port", "--host"),
    ("text-generation-launcher",): ("--port", "--hostname"),
    ("mlc_llm", "serve"): ("--port", "--host"),
    ("mlx_lm.server",): ("--port", "--host"),
    ("mlx_lm", "server"): ("--port", "--host"),
    ("lmdeploy", "serve", "api_server"): ("--server-port", "--server-name"),
    ("trtllm-serve",): ("--port", "--host"),
    ("transformers", "serve"): ("--port", "--host"),
}
"""Servers whose flags for port and host are known, by the words that name them."""
PARALLEL = {
    "tensor": ("--tensor-parallel-size", "--tp-size", "--tp", "-tp", "--num-shard"),
    "pipeline": ("--pipeline-parallel-size", "--pp-size", "--pp", "-pp"),
    "data": ("--data-parallel-size", "--dp-size", "--dp", "-dp"),
}
"""Flags by which a server asks for several GPUs; their numbers are multiplied."""
SHELL = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<"))
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
EXAMPLE = "write it like --serve 'vllm serve MODEL', or with {port}: --serve 'python server.py --port {port}'"


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """A command that starts a server, with places for its port and its host."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    """Variables of the environment that are written before the command."""

    @classmethod
    def parse(cls, text: str) -> "ServeCommand":
        """The command of a text, by the rules of a shell for quotes.

        >>> ServeCommand.parse("vllm serve m").words
        ('vllm', 'serve', 'm', '--host', '{host}', '--port', '{port}')
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise _wrong(f"cannot be read as a command: {str(error).lower()}", "close its quotes") from None
        variables: dict[str, str] = {}
        while words and (match := VARIABLE.fullmatch(words[0])) is not None:
            variables[match[1]] = match[2]
            words = words[1:]
        if not words:
            raise _wrong("must be a command", EXAMPLE)
        operator = next((word for word in words if word in SHELL), None)
        if operator is not None:
            fix = "write the command alone, or sh -c '… {port} …'"
            raise _wrong(f"has {operator!r}, which is for a shell: the command is started without one", fix)
        return cls(tuple(_with_port(words, variables)), variables)

    @property
    def program(self) -> str:
        return self.words[0]

    def at(self, host: str, port: int) -> tuple[list[str], dict[str, str]]:
        """The words and variables for one address."""

        def filled(text: str) -> str:
            return text.replace(PORT, str(port)).replace(HOST, host)

        return [filled(word) for word in self.words], {key: filled(value) for key, value in self.variables.items()}

    @property
    def host(self) -> str | None:
        """The host that the command names itself; None where it is ours to choose."""
        if any(HOST in text for text in (*self.words, *self.variables.values())):
            return None
        _, flag = _flags(self.words)
        return self.value(flag) if flag else None

    @property
    def gpus(self) -> int | None:
        """The GPUs that its flags ask for; None where they name none.

        >>> ServeCommand.parse("vllm serve m -tp 2 --pipeline-parallel-size=2").gpus
        4
        """
        sizes = {kind: self.value(*names) for kind, names in PARALLEL.items()}
        if "--enable-dp-attention" in self.words:  # SGLang: inside of the tensor-parallel group
            sizes["data"] = None
        numbers = [int(size) for size in sizes.values() if size is not None and size.isdecimal()]
        product = 1
        for number in numbers:
            product *= max(number, 1)
        return product if numbers else None

    @property
    def api_key(self) -> str | None:
        """The key that the server will ask for."""
        return self.value("--api-key") or self.variables.get("VLLM_API_KEY")

    def value(self, *names: str) -> str | None:
        """The value of a flag, written with underscores or dashes, after a blank or an equals sign."""
        for number, word in enumerate(self.words):
            flag, equals, value = word.partition("=")
            if flag.startswith("-") and flag.replace("_", "-") in names:
                following = self.words[number + 1 : number + 2]
                return value if equals else following[0] if following else None
        return None


def found_program(name: str) -> str | None:
    """The file of a program: on the path, or beside the Python that runs."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return shutil.which(name, path=path)


def serve_remarks(value: object) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """The problems of the option's value."""
    if isinstance(value, str):
        try:
            ServeCommand.parse(value)
        except ConfigError as error:
            for problem in error.problems:
                yield (), problem.what, problem.fix


def _with_port(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The words with places for host and port, which are added to the commands of known servers."""
    port, host = _flags(words)
    flag = next((word for word in words if word.partition("=")[0] in (port or "--port", "--port")), None)
    if any(PORT in text for text in (*words, *variables.values())):
        return list(words)
    if flag is not None:
        what = f"has its own {flag.partition('=')[0]}, and every server needs a free port"
        raise _wrong(what, f"leave it out, or write {flag.partition('=')[0]} {{port}}")
    if port is None:
        what = f"must show where {PurePath(words[0]).name!r} takes its port"
        raise _wrong(what, f"write {{port}} where it goes: --serve '{PurePath(words[0]).name} … --port {{port}}'")
    has_host = any(word.partition("=")[0] == host or HOST in word for word in words)
    return [*words, *(() if has_host else (host or "", HOST)), port, PORT]


def _flags(words: Sequence[str]) -> tuple[str | None, str | None]:
    """The flags for port and host of a known server."""
    names = [PurePath(word).name if not word.startswith("-") else word for word in words]
    for known, flags in KNOWN.items():
        if any(tuple(names[at : at + len(known)]) == known for at in range(len(names))):
            return flags
    return None, None


def _wrong(what: str, fix: str) -> ConfigError:
    return ConfigError.at("serve", what, fix)
