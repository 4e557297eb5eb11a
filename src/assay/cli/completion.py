"""`assay completion`: scripts for bash, zsh and fish, which ask the program for the words that may come next."""

import argparse
import sys
from collections.abc import Iterable, Sequence

from assay.cli import COMMANDS, Parser, add_shared, define

TASKS = frozenset(("tasks", "task"))
NAMED = frozenset(("show", "validate", "fetch"))
"""Commands whose positional arguments are names of tasks and groups."""
LONGEST_HELP = 60
BASH = """# completion of assay for bash and zsh: `assay completion bash >> ~/.bashrc`
_assay() {
  local IFS=$'\\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _assay assay
"""
ZSH = f"""autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit -u
bashcompinit
{BASH}"""
FISH = """# completion of assay for fish: assay completion fish > ~/.config/fish/completions/assay.fish
function __assay_words
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l words (assay __complete fish $before[2..-1] "$current" 2>/dev/null)
    if set -q words[1]
        printf '%s\\n' $words
    else
        __fish_complete_path "$current"
    end
end
complete -c assay -f -a '(__assay_words)'
"""


def run_completion(options: argparse.Namespace) -> int:
    sys.stdout.write({"bash": BASH, "zsh": ZSH, "fish": FISH}[options.shell])
    return 0


def print_words(arguments: Sequence[str]) -> int:
    """Write what the last word of a command line may become; for fish each with its sentence. Where nothing is written, shells
    offer the names of files."""
    shell, *words = arguments
    *before, current = [word for word in words if word != "="] + [""] * (words[-1:] == ["="])
    for word, sentence in _offered(before, current):
        if word.startswith(current) and word.isprintable() and " " not in word:
            about = " ".join(sentence.replace("%%", "%").split())[:LONGEST_HELP]
            sys.stdout.write(f"{word}\t{about}\n" if shell == "fish" else f"{word}\n")
    return 0


def _offered(before: Sequence[str], current: str) -> Iterable[tuple[str, str]]:
    """The words that may come behind others, each with its sentence."""
    if not before:
        return COMMANDS.items()
    name, rest = before[0].replace("_", "-"), before[1:]
    if name not in COMMANDS:
        return ()
    parser = Parser(prog=f"assay {name}")
    define(name, parser)
    add_shared(name, parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            if not rest:
                return [(word, "") for word in action.choices]
            parser, rest = action.choices.get(rest[0], parser), rest[1:]
    shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    if current.startswith("-"):
        flags = [(flag, str(each.help)) for each in shown for flag in each.option_strings if flag.startswith("--")]
        is_dashed = "-" in current.removeprefix("--")
        return [(flag.replace("_", "-") if is_dashed else flag, sentence) for flag, sentence in flags]
    positional = [action for action in shown if not action.option_strings]
    open_flag = _open_flag(parser, rest)
    if open_flag is not None:
        values = _values(name, open_flag, current, rest)
    elif len(rest) < len(positional):
        values = _values(name, positional[len(rest)], current, rest)
    else:
        values = _values(name, positional[-1], current, rest) if positional and _takes_many(positional[-1]) else ()
    return [(value, "") for value in values]


def _takes_many(action: argparse.Action) -> bool:
    return action.nargs in ("+", "*")


def _open_flag(parser: Parser, words: Sequence[str]) -> argparse.Action | None:
    """The last flag, where another value may belong to it."""
    at = max((number for number, word in enumerate(words) if word.startswith("-")), default=None)
    if at is None:
        return None
    flag = parser._option_string_actions.get(parser.as_defined(words[at].partition("=")[0]))
    has_value = at < len(words) - 1
    return None if flag is None or flag.nargs == 0 or (has_value and not _takes_many(flag)) else flag


def _values(command: str, action: argparse.Action, current: str, words: Sequence[str]) -> Iterable[str]:
    if action.choices:
        return map(str, action.choices)
    if action.dest == "model" and command == "run":
        from assay.models.load import BACKENDS

        return sorted(BACKENDS.names())
    if action.dest in TASKS or (command in NAMED and not action.option_strings):
        before, comma, _ = current.rpartition(",")
        return [f"{before}{comma}{name}" for name in sorted(set(_task_names(words)))]
    return ()


def _task_names(words: Sequence[str]) -> Iterable[str]:
    """The names of tasks, groups and tags; those below --include_path, too."""
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
