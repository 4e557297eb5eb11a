"""Flags: those of `assay run`, made from the fields of RunConfig, and those that many commands share."""

import argparse
import dataclasses
import getpass
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.ahead import import_ahead
from assay.config.arguments import parse_arguments, parse_value
from assay.config.option import YAMLMapping, YAMLValue, yaml_fields
from assay.config.run import GRAPHS, GROUPS, OPTIONS, PATHS, SCORING, WORK, RunConfig, RunOption
from assay.errors import ConfigError

if typing.TYPE_CHECKING:
    from assay.tasks import TaskManager

TRACKERS = {
    "wandb_args": "log the finished run to Weights & Biases: arguments of wandb.init",
    "wandb_config_args": "with --wandb_args: further settings of the run there",
    "trackio_args": "log the finished run to Trackio: arguments of trackio.init",
    "hf_hub_log_args": "push the finished run to the Hugging Face hub, as lm-eval does: push_results_to_hub=True …",
}
"""Flags of lm-eval that are carried out when a run is finished (cli/trackers.py)."""
LONGEST_NAME = 80
ALIASES = {"num_records": "limit", "output_dir": "output_path"}
"""SyGra's names of flags, and ours."""
NOT_NEEDED = {
    "checkpoint_interval": ("-ci", "every answer is stored as it comes"),
    "debug": ("-d", "errors always name their file and line"),
    "clear_logs": ("-cl", "there are no log files"),
    "output_with_ts": ("-owt", "output files always have the time in their names, and --run_name before it"),
    "disable_metadata": ("-dm", "the run folder always has a manifest"),
}
"""SyGra's flags without an effect, and why."""
ELSEWHERE = {
    "run_args": ("-ra", "write the values into the graph file, or into its records"),
    "oasst": ("-ost", "write the layout with output_config.generator"),
    "quality": ("-q", "measure quality with a UnitMetrics node, or with a judge"),
}
"""SyGra's flags that are not supported, and what to do instead."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable with the file of the summary that GitHub shows for a step."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The values of these flags, as parameters of the function that they are named like."""
    return {name: getattr(options, name) for name in names}


class Flags:
    """Adds flags of the usual kinds to a parser; called, one as argparse takes it. Names of a flag are one text: `--tasks -t`."""

    def __init__(self, parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
        self._add: Callable[..., argparse.Action] = parser.add_argument

    def __call__(self, *names: str, **settings: Any) -> None:
        self._add(*names, **settings)

    def switch(self, names: str, help: str) -> None:
        self._add(*names.split(), action="store_true", help=help)

    def text(self, names: str, metavar: str, help: str, **more: Any) -> None:
        self._add(*names.split(), metavar=metavar, help=help, **more)

    def many(self, names: str, metavar: str, help: str) -> None:
        """Add a flag with one or more values."""
        self.text(names, metavar, help, nargs="+", default=[])

    def repeated(self, names: str, metavar: str, help: str, **more: Any) -> None:
        self.text(names, metavar, help, action="append", default=[], **more)

    def pairs(self, names: str, help: str) -> None:
        self.text(names, "K=V", help, nargs="+", action="extend")

    def number(
        self, names: str, default: float | None, metavar: str, help: str, read: Callable[[str], float] = float
    ) -> None:
        self.text(names, metavar, help, type=read, default=default)

    def choice(self, names: str, choices: Sequence[str], help: str, default: str | None = None) -> None:
        self._add(*names.split(), choices=choices, default=default, help=help)


def define_run(parser: argparse.ArgumentParser) -> None:
    groups = add_run_options(parser)
    paths, scoring = Flags(groups[PATHS]), Flags(groups[SCORING])
    Flags(groups[WORK]).text("--config -C", "FILE", "a YAML file with any of these options; flags override it")
    paths.switch("--no_output", "write no files, only print the table")
    scoring.number("--depth", None, "N", "levels of groups in the table", parse_count)
    add_table_options(groups[SCORING])
    gates = parser.add_argument_group("gates (exit code 0: pass, 1: fail, 4: inconclusive)")
    add = Flags(gates)
    add.repeated("--gate", "GATE", "what the run must show: 'acc >= 0.8', 'failed <= 1%%', 'acc >= baseline - 1pp'"
        " (docs/ci.md); repeatable")  # fmt: skip
    add.text("--baseline", "RUN", "the run, or the file of `assay pack`, that differences are to")
    add_gate_flags(gates)
    _define_sygra(Flags(groups[GRAPHS]))
    for name, sentence in TRACKERS.items():
        paths.pairs(f"--{name}", sentence)
    paths.repeated("--export", "NAME", "write the finished run for another program, too, as lm-eval: below exports/ in its"
        " folder (names: `assay export --to`); repeatable")  # fmt: skip


def add_gate_flags(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the flags of all commands with gates."""
    add = Flags(parser)
    add.choice("--inconclusive", ("pass", "fail"), "what a gate counts as that too few documents decide"
        " (default: its own exit code, 4)")  # fmt: skip
    add.text("--junit", "FILE", "write the verdicts as JUnit XML")
    add.switch("--github", f"write annotations and a summary for GitHub Actions (default: where ${SUMMARY} is set)")


def _define_sygra(add: Flags) -> None:
    add.text("--task", "NAME",
        "one task: tasks.eval.a.b, eval/a/b, a folder; with it --batch_size is the number of concurrent records")  # fmt: skip
    add.number("--num_records -n", None, "N", "the first N records (default: all)", int)
    add.text("--output_dir -od", "DIR", "same as --output_path")
    add("--resume", nargs="?", const=True, metavar="BOOL", help="no effect: a run with a folder is always resumed")
    for name, (short, _) in {**NOT_NEEDED, **ELSEWHERE}.items():
        add(f"--{name}", short, nargs="?", const="true", metavar="VALUE", help=argparse.SUPPRESS)


def run_run(options: argparse.Namespace) -> int:
    if options.model is not None and not options.dry_run and options.replicas is None and options.serve is None:
        from assay.models.load import imported_by

        import_ahead(imported_by(options.model))  # while the evaluation is imported
    from assay.cli import run  # imports the evaluation, which `--help` does without

    return run.run_run(options)


def add_run_options(parser: argparse.ArgumentParser) -> dict[str, "argparse._ArgumentGroup"]:
    """Add every option of a run under its heading; returns the headings, for further flags."""
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for name, use in OPTIONS.items():
        if use.group is not None:
            add_option(groups[use.group] if use.group else parser, name)
    return groups


def _without_capital(sentence: str) -> str:
    """The sentence as a part of another: a first word such as GPUs stays as it is.

    >>> _without_capital("Number of GPUs"), _without_capital("GPUs of each replica")
    ('number of GPUs', 'GPUs of each replica')
    """
    return sentence if sentence[1:2].isupper() else sentence[0].lower() + sentence[1:]


def add_option(
    parser: "argparse.ArgumentParser | argparse._ArgumentGroup",
    name: str,
    *,
    help: str | None = None,  # argparse's word
    required: bool = False,
) -> None:
    """Add the flag of one option of a run; `help` is for commands where the option has another meaning."""
    use, field = OPTIONS[name], _FIELDS[name]
    settings = _settings(use, field)
    sentence = field.metadata["doc"].rstrip(".")
    default = field.default if "metavar" in settings or "choices" in settings else None
    shown = f" (default: {default})" if isinstance(default, str | int | float) and not isinstance(default, bool) else ""
    if use.flag:
        sentence = sentence.replace("Include", "Omit", 1)
    settings["help"] = help or (_without_capital(sentence) + shown).replace("%", "%%")
    if not use.group and help is None:
        settings["help"] = argparse.SUPPRESS
    if required:
        settings["required"] = True
    parser.add_argument(*filter(None, (f"--{use.flag or name}", use.short)), dest=name, **settings)


def _settings(use: RunOption, field: "dataclasses.Field[Any]") -> dict[str, Any]:
    """Derive the argparse settings of an option: from its syntax, else from its type."""
    hint, metavar = field.type, {"metavar": use.metavar} if use.metavar else {}
    kinds = set(typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)) - {type(None)}
    choices = [choice for kind in _literals(hint) for choice in typing.get_args(kind)]
    if use.flag:
        return {"action": "store_const", "const": False, "default": None}
    if choices:
        return {"choices": choices}
    if use.group == "" or (bool in kinds and (len(kinds) > 1 or field.default is True)):
        reader = {"type": _truth} if kinds == {bool} and use.group else {}
        return {"nargs": "?", "const": True, "default": None, **metavar, **reader}
    if kinds == {bool}:
        return {"action": "store_true", "default": None}
    if use.syntax:
        return {**_SYNTAX[use.syntax], **metavar}
    if field.metadata["many"]:
        return {"nargs": "+", **metavar}
    return {**({"type": kinds.pop()} if kinds <= {int, float} else {}), **metavar}


def _literals(hint: Any) -> list[Any]:
    parts = [hint, *typing.get_args(hint)]
    return [part for part in parts if typing.get_origin(part) is typing.Literal]


def parse_duration(text: str) -> float:
    """Read a number of seconds, or of minutes, hours, days with their letter."""
    number = text[:-1] if text[-1:] in UNITS else text
    try:
        return float(number) * UNITS.get(text[-1:], 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid duration {text!r}: use 90, 30m or 8h") from None


def parse_count(text: str) -> int:
    """Read a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, got {text!r}")
    return int(text)


def labeller_name(chosen: str | None) -> str:
    """The name under which labels are stored: the one of --labeller, else that of the login."""
    name = chosen.strip() if chosen is not None else ""
    if chosen is not None and (not name or len(name) > LONGEST_NAME or not name.isprintable()):
        what = f"a name has 1 to {LONGEST_NAME} characters, got {chosen!r:.90}"
        raise ConfigError.at("--labeller", what, "such as --labeller Ann")
    try:
        return name or getpass.getuser()
    except (KeyError, OSError):  # a container may have no names of users
        return "someone"


def _truth(text: str) -> bool:
    value = parse_value(text)
    if not isinstance(value, bool):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return value


_SYNTAX: dict[str, dict[str, Any]] = {
    "pairs": {"nargs": "+", "action": "extend"},
    "arguments": {"nargs": "+", "action": "extend"},
    "role": {"action": "append"},
    "append": {"action": "append"},
    "duration": {"type": parse_duration},
    **{syntax: {} for syntax in ("samples", "numbers", "value")},
}
_FIELDS = {item.name: item for item in yaml_fields(RunConfig)}


def run_options(flags: argparse.Namespace, file: YAMLMapping | None = None) -> dict[str, YAMLValue]:
    """Collect the options that were given: by flag, else in a file. Text of flags and files becomes values here."""
    options = dict(file or {})
    for name, use in OPTIONS.items():
        value = getattr(flags, name, None)
        if value is not None:
            options[name] = _joined(name, value, use)
        if isinstance(options.get(name), str) and use.syntax in _TEXT:
            options[name] = _TEXT[use.syntax](str(options[name]))
    if getattr(flags, "plugin", None):
        options["plugins"] = list(flags.plugin)
    return options


def _joined(name: str, value: Any, use: RunOption) -> YAMLValue:
    """Unite the texts of a flag that takes many of them."""
    if use.syntax in ("pairs", "arguments"):
        return joined_pairs(name, value)
    return dict(_role(text) for text in value) if use.syntax == "role" else value


def joined_pairs(name: str, texts: Sequence[str] | None) -> dict[str, YAMLValue] | None:
    """Unite the texts of a flag that takes `k=v,k=v k=v`."""
    return None if texts is None else {key: part for each in texts for key, part in parse_arguments(each, name).items()}


def _role(text: str) -> tuple[str, str]:
    role, equals, model = text.partition("=")
    if not equals:
        fix = "write judge=openai-chat,model=x,base_url=…"
        raise ConfigError.at("model_role", f"no role in {text!r}", fix)
    return role.strip(), model


def _samples(written: str) -> YAMLValue:
    import json

    try:
        return json.loads(_content(written) if not written.lstrip().startswith("{") else written)
    except ValueError as error:
        raise ConfigError.at("samples", f"is not valid JSON: {error}", 'write {"task": [0, 1]}') from None


def _content(written: str) -> str:
    """The text of a file; what names none is the text itself."""
    try:
        is_file = Path(written).is_file()
    except OSError:  # too long for a path
        is_file = False
    return Path(written).read_text() if is_file else written


def _numbers(text: str) -> list[YAMLValue]:
    return [parse_value(part) for part in text.split(",")]


_TEXT: dict[str, Callable[[str], YAMLValue]] = {
    "samples": _samples,
    "arguments": lambda text: parse_arguments(text, "metadata"),
    "numbers": _numbers,
    "value": parse_value,
}


def add_catalog_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name where tasks are searched."""
    add_option(parser, "include_path")
    add_option(parser, "include_defaults")
    Flags(parser).choice("--compat", ("lm-eval",), "read every folder as lm-eval reads its own")


def add_table_options(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", *more: str) -> None:
    """Add the flags of a command that prints tables; `more` are its other formats."""
    about = "table fits the terminal, and is markdown when piped; md is always markdown"
    Flags(parser).choice("--format", ("table", "md", *more), about, "table")
    Flags(parser).switch("--wide", "all columns, however wide the terminal is")


def task_manager(options: argparse.Namespace) -> "TaskManager":
    """Build the manager that those flags describe."""
    from assay.tasks import TaskManager  # not imported by commands that need no tasks

    return TaskManager(
        include_path=options.include_path, include_defaults=options.include_defaults is None, compat=options.compat
    )
