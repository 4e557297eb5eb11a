"""`assay completion`: scripts for bash, zsh and fish, made from the parsers of all commands. Names of tasks are asked for when they
are needed, and come from the cached index.
"""

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.cli import COMMANDS, Parser, add_shared, define

SHELLS = ("bash", "zsh", "fish")
PATHS = frozenset(("FILE", "DIR", "RUN", "OUT", "MODULE_OR_FILE", "PATH", "FOLDER"))
TASKS = frozenset(("tasks", "task"))
NAMED = frozenset(("show", "validate", "fetch"))
"""Commands whose positional arguments are names of tasks and groups."""


class CompletedArgument(NamedTuple):
    """A flag or a positional argument, and what its values are: tasks, models, files, a list of words, or anything."""

    flags: tuple[str, ...]
    values: str
    choices: tuple[str, ...]
    is_many: bool
    help: str

    @property
    def key(self) -> str:
        return next((each for each in self.flags if each.startswith("--")), self.flags[0]).lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class CommandLine:
    """A command, or one action of a command, with its arguments."""

    name: str
    sentence: str
    flags: Sequence[CompletedArgument]
    positional: Sequence[CompletedArgument]
    actions: tuple[str, ...] = ()


def define_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="print the script of this shell")
    parser.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    commands = [each for name, sentence in COMMANDS.items() for each in command_lines(name, sentence)]
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](commands))
    return 0


def command_lines(name: str, sentence: str) -> list[CommandLine]:
    """A command, and its actions if it has any."""
    parser = Parser(prog=f"assay {name}")
    define(name, parser)
    add_shared(name, parser)
    actions = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    if actions is None:
        return [_line(name, sentence, parser)]
    below = [_line(f"{name} {action}", sentence, inner) for action, inner in actions.choices.items()]
    return [CommandLine(name, sentence, (), (), tuple(actions.choices)), *below]


def _line(name: str, sentence: str, parser: argparse.ArgumentParser) -> CommandLine:
    shown = [each for each in parser._actions if each.help is not argparse.SUPPRESS]
    arguments = [(each, _argument(name, each)) for each in shown]
    return CommandLine(
        name,
        sentence,
        [argument for action, argument in arguments if action.option_strings],
        [argument for action, argument in arguments if not action.option_strings],
    )


def _argument(command: str, action: argparse.Action) -> CompletedArgument:
    choices = tuple(map(str, action.choices)) if action.choices else ()
    is_path = str(action.metavar) in PATHS or action.dest.endswith(("_path", "_dir"))
    is_task = action.dest in TASKS or (command in NAMED and not action.option_strings)
    is_model = action.dest == "model" and command == "run"
    kinds = {"none": action.nargs == 0, "choices": choices, "models": is_model, "tasks": is_task, "files": is_path}
    kind = next((name for name, holds in kinds.items() if holds), "text")
    flags = tuple(action.option_strings) or (action.dest,)
    return CompletedArgument(flags, kind, choices, action.nargs in ("+", "*"), " ".join((action.help or "").split()))


def _models() -> list[str]:
    from assay.models.load import BACKENDS

    return sorted(BACKENDS.names())


def _words(argument: CompletedArgument) -> Sequence[str]:
    return argument.choices if argument.values == "choices" else _models() if argument.values == "models" else ()


# --- bash and zsh -----------------------------------------------------------------------------------------------------


def bash(commands: Sequence[CommandLine]) -> str:
    """The script for bash. Where nothing is completed by it, the names of files are."""
    actions = {each.name: each.actions for each in commands if each.actions}
    nested = "\n".join(
        f"    {name}) if (( COMP_CWORD == 2 )); then _assay_reply {shlex.quote(' '.join(words))}; return; fi;"
        f' command="{name} ${{COMP_WORDS[2]}}"; first=3 ;;'
        for name, words in actions.items()
    )
    top = " ".join(dict.fromkeys(each.name.split()[0] for each in commands))
    flags = "\n".join(
        f"    {shlex.quote(each.name)}) flags={shlex.quote(_flags(each))} ;;" for each in commands if each.flags
    )
    many = "|".join(sorted({_case(each, flag) for each in commands for flag in each.flags if flag.is_many}))
    return BASH % {
        "top": shlex.quote(top), "nested": nested, "flags": flags, "many": many or "-",
        "values": _values(commands), "positional": _positional(commands), "short": _short(commands),
    }  # fmt: skip


def _flags(command: CommandLine) -> str:
    return " ".join(name for each in command.flags for name in each.flags if name.startswith("--"))


def _case(command: CommandLine, argument: CompletedArgument) -> str:
    return shlex.quote(f"{command.name}:{argument.key}")


def _short(commands: Sequence[CommandLine]) -> str:
    """Short flags by the long ones that they mean."""
    pairs = {
        f"    {shlex.quote(f'{command.name}:{name}')}) flag={each.key} ;;"
        for command in commands
        for each in command.flags
        for name in each.flags
        if not name.startswith("--")
    }
    return "\n".join(sorted(pairs))


def _values(commands: Sequence[CommandLine]) -> str:
    cases: dict[str, list[str]] = {}
    for command in commands:
        for each in command.flags:
            if each.values != "none":
                cases.setdefault(_reply(each), []).append(_case(command, each))
    return "\n".join(f"    {'|'.join(places)}) {reply}; return ;;" for reply, places in cases.items())


def _positional(commands: Sequence[CommandLine]) -> str:
    lines = []
    for command in commands:
        for number, each in enumerate(command.positional):
            place = "*" if each.is_many else str(number)
            lines.append(f"    {shlex.quote(command.name + ':')}{place}) {_reply(each)} ;;")
    return "\n".join(lines)


def _reply(argument: CompletedArgument) -> str:
    words = _words(argument)
    return (
        f"_assay_reply {shlex.quote(' '.join(words))}"
        if words
        else "_assay_tasks"
        if argument.values == "tasks"
        else ":"
    )


BASH = r"""# completion of assay for bash and zsh: `assay completion bash >> ~/.bashrc`
_assay_reply() { COMPREPLY=($(compgen -W "$1" -- "$cur")); }
_assay_tasks() { COMPREPLY=($("${COMP_WORDS[0]}" __names tasks "$cur" "${COMP_WORDS[@]}" 2>/dev/null)); }
_assay() {
  local cur="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" flags="" flag="" first=2 at=0 place=0
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then _assay_reply %(top)s; return; fi
  command="${command//_/-}"
  case "$command" in
%(nested)s
  esac
  case "$command" in
%(flags)s
  esac
  [ "$cur" = "=" ] && cur=""
  if [[ "$cur" == -* ]]; then
    [[ "${cur#--}" == *-* ]] && flags="${flags//_/-}"
    _assay_reply "$flags"
    return
  fi
  for (( at = COMP_CWORD - 1; at >= first; at-- )); do
    if [[ "${COMP_WORDS[at]}" == -* ]]; then flag="${COMP_WORDS[at]}"; break; fi
  done
  if [ -n "$flag" ]; then
    case "$command:$flag" in
%(short)s
    esac
    flag="${flag#--}"; flag="${flag%%%%=*}"; flag="${flag//-/_}"
    local value="${COMP_WORDS[COMP_CWORD-1]}"
    if (( at < COMP_CWORD - 1 )) && [ "$value" != "=" ]; then
      case "$command:$flag" in %(many)s) ;; *) flag="" ;; esac
    fi
  fi
  if [ -n "$flag" ]; then
    case "$command:$flag" in
%(values)s
    esac
  fi
  place=$(( COMP_CWORD - first ))
  case "$command:$place" in
%(positional)s
  esac
}
complete -o default -F _assay assay
"""


def zsh(commands: Sequence[CommandLine]) -> str:
    """The script for zsh: that of bash, which zsh runs by its own emulation."""
    start = "autoload -Uz compinit bashcompinit\n(( $+functions[compdef] )) || compinit -u\nbashcompinit\n"
    return f"{start}{bash(commands)}"


# --- fish -------------------------------------------------------------------------------------------------------------


def fish(commands: Sequence[CommandLine]) -> str:
    """The script for fish, which shows the sentence of each command and flag beside it."""
    lines = ["# completion of assay for fish: assay completion fish > ~/.config/fish/completions/assay.fish"]
    for each in commands:
        name, _, action = each.name.partition(" ")
        if not action:
            lines.append(f"complete -c assay -f -n __fish_use_subcommand -a {name} -d {_quoted(each.sentence)}")
        where = f"__fish_seen_subcommand_from {name}" + (
            f"; and __fish_seen_subcommand_from {action}" if action else ""
        )
        if each.actions:
            unseen = f"{where}; and not __fish_seen_subcommand_from {' '.join(each.actions)}"
            lines.append(f"complete -c assay -f -n {_quoted(unseen)} -a {_quoted(' '.join(each.actions))}")
        for flag in each.flags:
            lines += _fish_flag(where, flag)
        lines += [
            f"complete -c assay -f -n {_quoted(where)} -a {_fish_values(one)}"
            for one in each.positional
            if one.values in ("choices", "models", "tasks")
        ]
    return "\n".join(lines) + "\n"


def _fish_flag(where: str, flag: CompletedArgument) -> Iterable[str]:
    long = [name[2:] for name in flag.flags if name.startswith("--")]
    short = [
        f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}" for name in flag.flags if not name.startswith("--")
    ]
    names = " ".join([*(f"-l {each}" for each in long), *short])
    values = f" -x -a {_fish_values(flag)}" if flag.values in ("choices", "models", "tasks") else ""
    needed = " -r" if flag.values in ("files", "text") else ""
    about = f" -d {_quoted(flag.help[:60])}" if flag.help else ""
    yield f"complete -c assay -n {_quoted(where)} {names}{values}{needed}{about}"


def _fish_values(argument: CompletedArgument) -> str:
    if argument.values == "tasks":
        return _quoted("(assay __names tasks (commandline -ct) (commandline -opc) 2>/dev/null)")
    return _quoted(" ".join(_words(argument)))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"


# --- names ------------------------------------------------------------------------------------------------------------


def print_names(arguments: Sequence[str]) -> int:
    """Write the names of a kind that begin with a text; `tasks` after the last comma of it. The other words are those of the
    command line, whose --include_path counts."""
    kind, start, *words = [*arguments, "", ""][:2] + list(arguments[2:])
    if kind != "tasks":
        return 2
    before, comma, last = start.rpartition(",")
    names = sorted({name for name in _task_names(words) if name.startswith(last)})
    sys.stdout.write("".join(f"{before}{comma}{name}\n" for name in names if name.isprintable() and " " not in name))
    return 0


def _task_names(words: Sequence[str]) -> Iterable[str]:
    from assay.catalog.index import index_root, load_snapshot
    from assay.catalog.roots import all_roots
    from assay.dialect import OURS
    from assay.errors import AssayError

    flags = [word.replace("-", "_").removeprefix("__") for word in words]
    included = [words[at + 1] for at, flag in enumerate(flags[:-1]) if flag == "include_path"]
    try:
        roots = all_roots(included, include_defaults="no_defaults" not in flags, dialect=OURS)
    except AssayError:
        return
    for root in roots:
        # A large folder that was never listed would take many seconds: `assay ls` reads it once.
        snapshot = load_snapshot(root) or (index_root(root) if root.origin != "lm_eval" else None)
        for entry in snapshot.entries if snapshot is not None else ():
            if entry.kind in ("task", "group"):
                yield entry.name
                yield from entry.tags
