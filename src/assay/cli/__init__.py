"""The command line: `main`, and the table of commands. Printing help imports nothing heavy."""

import argparse
import gc
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, NoReturn

from assay.ahead import is_working_ahead
from assay.cli.help import description, example, main_help
from assay.errors import nearest
from assay.version import __version__

COMMANDS = {
    "run": "evaluate a model on tasks",
    "watch": "evaluate the checkpoints of a training as they appear, and alarm when one is worse than those before it",
    "score": "score the answers of a run again, with other filters or metrics, without a model",
    "merge": "combine the shards of a run into one run",
    "launch": "print or send a script that runs an evaluation on SLURM or Kubernetes",
    "compare": "compare runs with the first of them, document by document: is B worse than A, and why",
    "gate": "decide what a run must show, alone or against a baseline, with an exit code for CI",
    "leaderboard": "rank models by pairwise verdicts and by scores on the same documents, with intervals of ranks",
    "table": "print runs side by side as a paper does: models by tasks, the best in bold; LaTeX, markdown, HTML, CSV, JSON",
    "plan": "compute how many documents or repeats are needed to detect a difference",
    "verify-backend": "compare the answers of two backends to identical requests",
    "view": "browse runs in a browser: groups, tasks, samples, comparisons",
    "samples": "print samples of a run: prompt, answer, target, scores",
    "label": "choose documents of a judged run for people to label, and correct the judge's numbers by their labels",
    "plot": "draw runs as SVG, PNG or PDF: scores with intervals, over time, reliability, pass@k",
    "report": "write one file with the results of runs and their comparison: HTML, markdown, JSON or CSV",
    "export": "convert a run: lm-eval's files, Inspect's logs, Parquet, MLflow, Weights & Biases",
    "import": "make a run from lm-eval's files, from Inspect's logs, or from other runs, with groups over them",
    "pack": "write a run to one file without secrets and, if asked for, without right answers",
    "ls": "list tasks, groups, tags, formats and everything else that has a name",
    "show": "print the settings of a task or group, each with its origin",
    "validate": "check task and group files without a model, a network or a GPU",
    "new": "write files to start from: a task, group, metric, filter, scorer or graph",
    "runs": "list, show and remove runs",
    "cache": "list and remove the responses in a cache",
    "fetch": "download lm-eval's task files (`fetch tasks`), or the data sets of tasks",
    "schema": "print the JSON Schema of task or group files, for editors",
    "doctor": "check this installation: versions, extras, GPU, server, hub, disk",
    "completion": "print the completion of commands, flags and names for a shell",
}
MODULES = {
    "run": "flags",
    "merge": "score",
    "verify-backend": "compare",
    **dict.fromkeys(("export", "import", "pack"), "exchange"),
    **dict.fromkeys(("validate", "fetch"), "tasks"),
    **dict.fromkeys(("plot", "table", "leaderboard"), "report"),
    "cache": "runs",
    "schema": "ls",
}
"""The files of commands that share one; the others have a file with their name."""
NAMELESS = ("import", "pack", "new", "runs", "cache", "schema", "doctor", "completion")
"""Commands that use no names of plug-ins."""
PLUGIN = "a module or a .py file to import first: it may register metrics, models, … (docs/plugins.md); repeatable"


OWN = frozenset(("-h", "--help", "--version"))
"""Flags of the program itself; with any other as its first argument, `run` is meant."""
CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")
NOT_A_NUMBER = re.compile(r"invalid (int|float) value: ('.*')$")


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest name and accepts no abbreviation: a new option would change its meaning."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def _parse_optional(self, arg_string: str) -> Any:
        return super()._parse_optional(self.as_defined(arg_string))

    def as_defined(self, argument: str) -> str:
        """A flag as the command spells it: dashes and underscores are alike."""
        name, equals, value = argument.partition("=")
        if not name.startswith("--") or name in self._option_string_actions:
            return argument
        alike = (each for each in self._option_string_actions if _plain_flag(each) == _plain_flag(name))
        return next(alike, name) + equals + value

    def error(self, message: str) -> NoReturn:
        """End the command with a sentence; its flags, which fill a screen, are in its help."""
        choice, number = CHOICE.search(message), NOT_A_NUMBER.search(message)
        if choice is not None:
            known = [each.strip(" '") for each in choice[2].split(",")]
            is_command = known == list(COMMANDS)
            what = f"no command named {choice[1]!r}" if is_command else f"{message[: choice.start()]}no {choice[1]!r}"
            self.say(what, _suggestion(choice[1], known) or ("" if is_command else f"use one of: {', '.join(known)}"))
        if number is not None:
            kind = "a whole number" if number[1] == "int" else "a number"
            message = f"{message[: number.start()]}{number[2]} is not {kind}"
        self.say(message)

    def say(self, what: str, fix: str = "") -> NoReturn:
        """End the command with what is wrong and what to do."""
        listed = "commands" if self.prog == "assay" else "flags"
        what = what.removeprefix("argument ")
        self.exit(2, f"{self.prog}: {what} — {fix or f'`{self.prog} --help` lists its {listed}'}\n")

    def refuse(self, unknown: list[str]) -> NoReturn:
        """End the command because of unknown arguments."""
        parsers = (self, *_below(self))
        options = [name for each in parsers for name in each._option_string_actions if name.startswith("--")]
        wrong = [each.partition("=")[0] for each in unknown if each.startswith("-")] or unknown
        if not wrong[0].startswith("-") and "--tasks" in options:
            self.say(
                f"unknown argument {wrong[0]}", f"tasks are named behind --tasks: `{self.prog} --tasks {wrong[0]}`"
            )
        meant = "--" + wrong[0][2:].replace("-", "_") if wrong[0].startswith("--") else wrong[0]
        self.say(f"unknown argument {wrong[0]}", _suggestion(meant, options))


class MainParser(Parser):
    """The parser of `assay` itself, whose help lists the commands by section."""

    def format_help(self) -> str:
        return main_help(COMMANDS)


def _plain_flag(name: str) -> str:
    return name.replace("-", "_")


def _is_own(flag: str) -> bool:
    """Whether a flag is one of the program itself, or meant as one."""
    return flag in OWN or bool(flag.startswith("--") and nearest(flag, OWN, 1, only_slips=True))


def _suggestion(word: str, known: Iterable[str]) -> str:
    words = list(dict.fromkeys(known))
    near = nearest(word, words, count=2, only_slips=True) or nearest(word, words, count=1)
    return f"did you mean {' or '.join(near)}?" if near else ""


def define(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command; its file is imported when it runs."""
    function = name.replace("-", "_")
    getattr(import_module("assay.cli.commands"), f"define_{function}")(parser)
    parser.set_defaults(run=partial(_run_in, MODULES.get(name, function), f"run_{function}"))


def _run_in(module: str, function: str, options: argparse.Namespace) -> int:
    code: int = getattr(import_module(f"assay.cli.{module}"), function)(options)
    return code


def add_shared(name: str, command: argparse.ArgumentParser) -> None:
    """Add the flags that all commands have."""
    if name not in NAMELESS:
        command.add_argument("--plugin", action="append", default=[], metavar="MODULE_OR_FILE", help=PLUGIN)
    for each in (command, *_below(command)):
        each.add_argument(
            "--no_color", action="store_true", default=argparse.SUPPRESS, help="no colours ($NO_COLOR does the same)"
        )


def _below(command: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of a command's actions."""
    actions = [each for each in command._actions if isinstance(each, argparse._SubParsersAction)]
    return [parser for each in actions for parser in each.choices.values()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 with problems, 2 refused."""
    return run_program(lambda: _main(argv), is_whole_process=argv is None)


def run_program(command: Callable[[], int], *, is_whole_process: bool) -> int:
    """Return the exit code of a command; of one that a signal stopped, that of the signal, whatever became of it on its way.

    Python makes a RuntimeError of one that arrives in `__set_name__`, and some libraries catch everything while they are imported.
    """
    code: int | None = None
    with ExitStack() as outcome:
        outcome.push(_is_stop)
        with _stopping_signals():
            code = command()
    if _stopped_by or code is None:
        code = interrupted_code()
    is_loading = (
        is_whole_process and is_working_ahead()
    )  # in the middle of some libraries Python's own end aborts the process
    if _stopped_by or is_loading:  # at its end Python would wait for threads, and take a second signal by default
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _is_stop(kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:  # noqa: ARG001
    """Whether an error is what became of an interrupt."""
    return kind is not None and (bool(_stopped_by) or issubclass(kind, KeyboardInterrupt))


def _main(argv: Sequence[str] | None) -> int:
    gc.set_threshold(50_000)  # with the default of 700, listing spends a tenth of its time on garbage collection
    parser = MainParser(prog="assay")
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["__complete"]:  # for the completion of shells
        from assay.cli.completion import print_words

        return print_words(arguments[1:])
    if arguments[:1] == ["__sweep"]:  # one model of a sweep
        from assay.cli.sweep_processes import run_one

        return run_one(arguments[1])
    if arguments[:1] and arguments[0].replace("_", "-") in COMMANDS:
        arguments[0] = arguments[0].replace("_", "-")
    if arguments and arguments[0].startswith("-") and not _is_own(arguments[0]):
        arguments.insert(0, "run")  # as lm-eval's command, which needs no word for it
    chosen: Parser = parser
    for name, sentence in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=sentence,
            description=description(sentence),
            epilog=example(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in arguments[:1]:  # the others print one line each, and need not be imported
            define(name, command)
            add_shared(name, command)
            chosen = command
    if not arguments:
        parser.print_help()
        return 0
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen.refuse(unknown)
    return _run(options)


_stopped_by: list[int] = []
"""The signal that stops this process, once it has arrived."""
SHOW_CURSOR = "\x1b[?25h"


def interrupted_code() -> int:
    """The exit code of an interrupted command: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + (_stopped_by[0] if _stopped_by else signal.SIGINT)


def _interrupt(number: int) -> None:
    """Raise KeyboardInterrupt, in a run as soon as no tool call would be cut off."""
    interrupts = sys.modules.get("assay.engine.interrupts")  # a command that asks nothing never imports it
    if interrupts is None:
        raise KeyboardInterrupt
    interrupts.interrupt(number)


@contextmanager
def _stopping_signals() -> Iterator[None]:
    """Stop at SIGTERM as at Ctrl-C: what was answered is written, tools that were begun are waited for, and status and exit code
    say so. A second signal ends the process at once. Signals that are ignored, as after nohup, stay so."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number, before in usual.items() if is_main and signal.getsignal(number) == before]
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the shape of a handler
        if os.getpid() != process:  # forked: it ends as it would without us
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if _stopped_by:
            cursor = SHOW_CURSOR if os.isatty(2) else ""
            os.write(2, f"{cursor}\nended at once; what was answered is kept\n".encode())
            os._exit(interrupted_code())
        _stopped_by.append(number)
        _interrupt(number)

    def again(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt) or not _stopped_by:
            usual_hook(unraisable)
            return
        threading.Timer(
            0.01, os.kill, (process, _stopped_by.pop())
        ).start()  # it came during a destructor, which swallows it

    usual_hook = sys.unraisablehook
    if taken:
        sys.unraisablehook = again
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        sys.unraisablehook = usual_hook if taken else sys.unraisablehook
        if not _stopped_by:  # otherwise another signal may still arrive while the process ends
            for number in taken:
                signal.signal(number, usual[number])


def _run(options: argparse.Namespace) -> int:
    from assay.cli.output import Screen, drawing, echo_err, prepare_streams
    from assay.errors import AssayError, SelfExplanatory

    prepare_streams()
    drawn = Screen(
        getattr(options, "wide", False), getattr(options, "format", None) == "md", getattr(options, "no_color", False)
    )
    try:
        with _stopping_signals(), drawing(drawn):
            return _run_command(options)
    except AssayError as error:
        if _stopped_by:  # user code or a library made another error of the interrupt
            return interrupted_code()
        for problem in error.problems:
            echo_err(str(problem))
        _report_in_junit(options, str(error))
        return 2
    except SelfExplanatory as error:  # of a file that changed since it was checked
        echo_err(str(error))
        return 2
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        _write_no_more()
        return 0
    except OSError as error:
        echo_err(f"{error.filename or 'output'}: {error.strerror or error}")
        _write_no_more()
        return 2
    except KeyboardInterrupt:
        return interrupted_code()


def _report_in_junit(options: argparse.Namespace, error: str) -> None:
    """Write an error where CI looks for verdicts."""
    if getattr(options, "junit", None):
        from assay.cli.gate import write_error
        from assay.errors import ConfigError

        with suppress(ConfigError):  # said above
            write_error(options.junit, getattr(options, "command", "run"), error)


def _write_no_more() -> None:
    """Let what is still to be written go nowhere; the caller of `main` may have put a stream without a descriptor there."""
    with suppress(io.UnsupportedOperation):
        descriptor = sys.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _run_command(options: argparse.Namespace) -> int:
    if getattr(options, "plugin", None):
        from assay.registry import load_plugins

        load_plugins(options.plugin)
    if getattr(options, "command", "run") != "run" and "://" in repr(vars(options)):
        from assay.cli.storage import local_copies

        with local_copies(options):
            code = int(options.run(options))
    else:
        code = int(options.run(options))
    sys.stdout.flush()
    return code
