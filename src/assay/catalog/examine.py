"""One file of the catalog: its kind, its name, and all of its problems."""

import re
from collections.abc import Iterator, Mapping, Sequence

from assay.catalog.conditions import ConditionError, parsed, refuse_unknown_options
from assay.catalog.include import IncludeReader, MergedFile
from assay.catalog.index import CatalogEntry, Kind
from assay.config.decode import check, decode
from assay.config.fields import Fields
from assay.config.group import GroupConfig
from assay.config.kinds import KINDS, kind_key
from assay.config.option import near_miss, yaml_keys
from assay.config.source import Source
from assay.config.task import FormatConfig, TaskConfig, media_problem, unsent_media
from assay.dialect import Dialect
from assay.errors import Problem, nearest, some, uncheckable
from assay.records import Failed, Params, UserValue
from assay.user_code import call_user_code

TASK_KEYS = yaml_keys(TaskConfig)
GROUP_KEYS = yaml_keys(GroupConfig)
MEMBER_KEYS = ("include", "if")
"""Keys allowed beside those of a task or group in a group's list."""
DEFINING_KEYS = ("dataset_path", "custom_dataset", "class", "doc_to_text", "doc_to_target")
"""Keys that define a new task; a mapping without them changes an existing one."""


def examine(path: str, reader: IncludeReader, dialect: Dialect) -> tuple[CatalogEntry, MergedFile]:
    """Return the index entry of a file, and the files read for it. No user code is executed.

    A file of another program is at worst broken: the others are still listed.
    """
    merged = reader.merged(path, dialect)
    entry = call_user_code("cannot be checked", _entry, path, merged)
    if isinstance(entry, Failed):
        error = str(uncheckable(path, entry.reason))
        return CatalogEntry(kind="broken", name=_file_stem(path), path=path, error=error), merged
    return entry, merged


def _entry(path: str, merged: MergedFile) -> CatalogEntry:
    fields = merged.fields
    problems = dict.fromkeys((*merged.problems, *check_fields(fields, path)))
    serious = [problem for problem in problems if problem.serious]
    kind, name = kind_of(fields, path), declared_name(fields)
    if serious and kind != "graph" and (not name or name_problem(name)):
        kind, name = "broken", _file_stem(path)
    more = f" (and {len(serious) - 1} more)" if len(serious) > 1 else ""
    return CatalogEntry(
        kind=kind,
        name=name,
        path=path,
        tags=tuple(strings_in(fields.get("tag"))) if kind in ("task", "graph") else (),
        members=tuple(member_names(fields.get("task"))) if kind == "group" else (),
        output_type=_output_type(fields) if kind in ("task", "graph") else "",
        error=f"{serious[0]}{more}" if serious else _unsent_media(fields) if kind == "task" else "",
    )


MISSPELLED_KIND = ("misspelled kind",)
"""The cause of a problem with the key that says of which kind a file is."""


def _file_stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _unsent_media(fields: Fields) -> str:
    """Why a valid task cannot run, where its keys show it."""
    key = unsent_media(fields)
    return str(media_problem(key, fields.place(key))) if key is not None else ""


def kind_of(fields: Fields, path: str | None = None) -> Kind:
    """The kind of a file by its keys; lm-eval's rule, and `format`.

    A file whose name comes only from an include is a template; lm-eval takes it for the included task.
    """
    is_of_members = "group" in fields and not isinstance(fields.get("task"), str)  # a class is their default
    if ("class" in fields and not is_of_members) or is_legacy_task(fields):
        return "task"
    if kind_key(fields) is not None:
        return "task" if fields.get("task") is not None else "graph"
    for kind in ("group", "task", "format"):
        if kind in fields:
            origin = fields.origin(kind)
            borrowed = path is not None and isinstance(origin.source, Source) and origin.source.file != path
            return "template" if borrowed and not origin.dialect.takes_name_from_include else kind
    return "template"


def _output_type(fields: Fields) -> str:
    key = kind_key(fields)
    return KINDS[key].name if key is not None else str(fields.get("output_type", "generate_until"))


def is_legacy_task(fields: Params) -> bool:
    """Whether a task has `group: x` instead of `tag: x`, as lm-eval's tasks had until 2024."""
    return "group" in fields and isinstance(fields.get("task"), str) and any(key in fields for key in DEFINING_KEYS)


def declared_name(fields: Fields) -> str:
    """The name that a file declares, without a format; empty where it declares none."""
    kind, key = kind_of(fields), kind_key(fields)
    name = fields.get("task" if kind == "graph" else kind)
    if kind == "graph" and key is not None and name is None:
        return KINDS[key].default_name(str(fields.place(key).file))
    return name.partition("@")[0] if isinstance(name, str) else ""


def check_fields(fields: Fields, path: str | None = None) -> list[Problem]:
    """All problems in the keys and values of one file, includes merged in."""
    problems = call_user_code("cannot be checked", _find_problems, fields, path)
    return [uncheckable(path or "configuration", problems.reason)] if isinstance(problems, Failed) else problems


def _find_problems(fields: Fields, path: str | None) -> list[Problem]:
    problems: list[Problem] = []
    kind, key = kind_of(fields, path), kind_key(fields)
    misspelled = _misspelled_kind(fields) if key is None else None
    if misspelled is not None:  # its other keys are not those of a plain task
        return [misspelled]
    if key is not None:
        KINDS[key].read(fields, problems)
    elif kind == "task":
        _check_task(fields, problems)
    elif kind == "group":
        check_group(fields, problems)
        if path is not None:
            problems += empty_group_problems(fields)
    elif kind == "format":
        decode(FormatConfig, fields, problems, known=("include",))
    else:
        _check_template(fields, problems)
    if kind in ("task", "format"):
        _check_name(fields, kind, problems)
    return problems


def _check_name(fields: Fields, key: str, problems: list[Problem]) -> None:
    name = fields.get(key)  # a missing one is reported by decoding
    wrong = name_problem(name)
    if not wrong and key != "task" and "@" in str(name):
        wrong = "contains '@', which is reserved for `name@format`"
    if not wrong and isinstance(name, str) and name.endswith("@"):
        wrong = "ends with '@' but has no format"
    if wrong and isinstance(name, str):
        tolerated = fields.origin(key).dialect.accepts_spaces_in_names and not name_problem(name.replace(" ", "_"))
        what = f"the name {name!r} {wrong}"
        problems.append(Problem(fields.place(key), what, "choose another name", serious=not tolerated))


def _check_task(fields: Fields, problems: list[Problem]) -> None:
    decode(TaskConfig, fields, problems, known=("group", "task_list", "include"))
    for number, tag in enumerate(_as_list(fields.get("tag"))):
        wrong = name_problem(tag)
        if wrong and isinstance(tag, str):
            place = fields.place("tag", *([number] if isinstance(fields["tag"], list) else []))
            problems.append(Problem(place, f"the tag {tag!r} {wrong}", "choose another tag"))
    if "group" in fields:
        fix = f"write `tag: {fields['group']}`, or list the task in a group file"
        serious = not fields.origin("group").dialect.accepts_misplaced_keys
        place = fields.place("group", key=True)
        problems.append(Problem(place, "a task file cannot have `group`", fix, serious=serious))


def check_group(fields: Fields, problems: list[Problem]) -> None:
    """Check a group's own keys, its defaults for members, and its members."""
    _check_name(fields, "group", problems)
    slip = _misspelled_members(fields)
    if slip is not None:
        fix = "did you mean 'task'?"
        problems.append(Problem(fields.place(slip, key=True), f"unknown key {slip!r}", fix))
        fields = fields.without(slip)
    check(GroupConfig, fields, problems, known=(*TASK_KEYS, *MEMBER_KEYS))
    check(TaskConfig, fields.without(*GROUP_KEYS, *MEMBER_KEYS), problems, known=GROUP_KEYS)
    if "tag" in fields:
        serious = not fields.origin("tag").dialect.accepts_misplaced_keys
        fix = "put the tag on the tasks; the group is selected by its name"
        problems.append(Problem(fields.place("tag", key=True), "a group cannot have a tag", fix, serious=serious))
    for number, member in enumerate(_as_list(fields.get("task"))):
        if isinstance(member, Mapping):
            inner = Fields.of(member, fields.origin("task").within("task", number))
            _check_member(inner, fields, number, problems)


def _misspelled_members(fields: Fields) -> str | None:
    """The slip in the key that lists the members of a group, where there is one."""
    if "task" in fields:
        return None
    unknown = [key for key in fields if key not in (*TASK_KEYS, *GROUP_KEYS, *MEMBER_KEYS)]
    return next((key for key in unknown if near_miss(str(key), ("task",))), None)


def empty_group_problems(fields: Fields, members: Sequence[tuple[str, str]] = ()) -> list[Problem]:
    """Problems of a group without members. `members` are names with the reason why each is left out."""
    if members and all(reason for _, reason in members):
        what = f"the conditions leave the group {fields['group']!r} without a member: {some([': '.join(m) for m in members])}"
        return [Problem(fields.place("task"), what, "correct a condition, or do not ask for the group")]
    if _as_list(fields.get("task")) or _misspelled_members(fields) is not None:
        return []
    place = fields.place("task" if "task" in fields else "group")
    return [
        Problem(
            place,
            f"the group {fields['group']!r} has no members: no task or group is listed",
            "list them under `task:`",
        )
    ]


def _check_member(member: Fields, group: Fields, number: int, problems: list[Problem]) -> None:
    if "if" in member:
        try:
            refuse_unknown_options(parsed(str(member["if"])))
        except ConditionError as error:
            problems.append(Problem(member.place("if"), f"invalid condition: {error.what}", error.fix))
    if "group" in member:
        check_group(member, problems)
    elif "task" in member:
        check(TaskConfig, member, problems, known=(*GROUP_KEYS, *MEMBER_KEYS))
        _check_name(member, "task", problems)
    else:
        near = nearest("task", map(str, member), count=1) or nearest("group", map(str, member), count=1)
        fix = f"{near[0]!r} looks like it" if near else "write `task: name`, or `group: name` with `task: [...]`"
        fix = "write 'tag:NAME' for the tasks of a tag" if "tag" in member else fix
        first = next(iter(member), None)
        said = str(member[first]) if first is not None else ""
        if said.startswith(("if ", "always", "never")):
            fix = f"write `- {first}`" if said == "always" else f'write {{task: {first}, if: "model.params >= 7e9"}}'
        problems.append(Problem(group.place("task", number), "a member needs `task` or `group`", fix))


def _misspelled_kind(fields: Fields) -> Problem | None:
    """The slip in the key that would mark a file as one of KINDS: known by its other keys, or by what is below it."""
    for marking in KINDS:
        alike = [key for key in fields if key not in TASK_KEYS and nearest(str(key), [marking])]
        keys = yaml_keys(KINDS[marking].config) if alike else ()
        unknown = next((key for key in alike if key not in keys), None)
        if unknown is not None and (
            isinstance(fields[unknown], Mapping) or any(key in fields for key in KINDS[marking].hint_keys)
        ):
            fix = f"did you mean {marking!r}?"
            return Problem(fields.place(unknown, key=True), f"unknown key {unknown!r}", fix, cause=MISSPELLED_KIND)
    return None


def without_followers(problems: Sequence[Problem]) -> list[Problem]:
    """The problems without those of files whose kind is misspelled: the other keys were read as those of another kind."""
    files = {problem.place.file for problem in problems if problem.cause == MISSPELLED_KIND}
    return [each for each in problems if each.cause == MISSPELLED_KIND or each.place.file not in files]


def _check_template(fields: Fields, problems: list[Problem]) -> None:
    """Check a file that is neither task nor group: it may be a task with a misspelled first key."""
    near = [
        key for key in fields if key not in TASK_KEYS and any(nearest(str(key), [kind]) for kind in ("task", "group"))
    ]
    if near and any(key in fields for key in DEFINING_KEYS):
        problems.append(Problem(fields.place(near[0], key=True), f"unknown key {near[0]!r}", "did you mean 'task'?"))


def name_problem(name: UserValue) -> str:
    """Why a text cannot name a task, group or tag; empty where it can.

    >>> name_problem("mmlu_anatomy"), name_problem("../evil")
    ('', "contains '/'")
    """
    if not isinstance(name, str):
        return "is not text"
    bare = name.removeprefix("tag:").partition("@")[0] if name.startswith("tag:") else name.partition("@")[0]
    if not bare or len(bare) > 200:
        return "is empty" if not bare else "is longer than 200 characters"
    odd = _FORBIDDEN.search(bare)
    if odd:
        return f"contains {odd.group()!r}"
    if bare[0] in ".~-":
        return f"begins with {bare[0]!r}"
    return "looks like a file name" if bare.endswith((".yaml", ".yml")) else ""


_FORBIDDEN = re.compile(r"::|[\s/\\,*?\[\]\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that would make a name a path, a pattern or several names, or are invisible."""


def member_names(members: UserValue) -> Iterator[str]:
    """The names in a group's list, inline ones included, without formats."""
    for member in _as_list(members):
        if isinstance(member, str):
            yield member.partition("@")[0]
        elif isinstance(member, Mapping):
            inner = member.get("task")
            if isinstance(inner, str) and "group" not in member:
                yield inner.partition("@")[0]
            elif isinstance(member.get("group"), str):
                yield str(member["group"])
                yield from member_names(inner)


def strings_in(value: UserValue) -> Iterator[str]:
    """The strings in one value or a list."""
    return (text for text in _as_list(value) if isinstance(text, str))


def _as_list(value: UserValue) -> list[UserValue]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
