"""lm-eval's small functions that scripts call: the table of results, names of files, parsing of arguments."""

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import random
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.compat.names import simple_parse_args_string as simple_parse_args_string
from assay.config.source import Source

ARROWS = {True: "↑", False: "↓"}
WHOLE = re.compile(r"-?\d+(?:\.0+)?")
"""A whole number, however many zeros it is written with."""


def make_table(result_dict: Mapping[str, Any], column: str = "results", sort_results: bool = False) -> str:
    """The results as lm-eval's markdown table: of tasks, or with `column="groups"` of groups."""
    rows: list[list[str]] = []
    order = sorted((name, 0) for name in result_dict[column]) if sort_results else _ordered(result_dict, column)
    for name, depth in order:
        row = result_dict[column][name]
        about = result_dict.get("higher_is_better", {}).get(name, {})
        label = " " * depth + "- " * (depth > 0) + str(row.get("alias", name))
        shown = [label, str(result_dict.get("versions", {}).get(name, "    N/A"))]
        for key, value in sorted(item for item in row.items() if "," in item[0]):
            metric, _, filter_name = key.partition(",")
            if metric.endswith("_stderr"):
                continue
            shots = str(result_dict.get("n-shot", {}).get(name, " "))
            text = f"{value:.4f}" if isinstance(value, float) else str(value)
            cells = [*shown, filter_name, shots, metric, ARROWS.get(about.get(metric), ""), text]
            rows.append([*cells, *_error(row.get(f"{metric}_stderr,{filter_name}"))])
            shown = ["", ""]
    header = [
        "Groups" if column == "groups" else "Tasks",
        "Version",
        "Filter",
        "n-shot",
        "Metric",
        "",
        "Value",
        "",
        "Stderr",
    ]
    return _markdown(header, rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table as lm-eval's library writes it: numbers of a column with equally many digits, no more than they need."""
    columns = [_digits([row[place] for row in rows]) for place in range(len(header))]
    widths = [max(3, len(name), *map(len, cells)) for name, (cells, _) in zip(header, columns, strict=True)]
    rule = ["-" * (width - numeric) + ":" * numeric for width, (_, numeric) in zip(widths, columns, strict=True)]
    lines = [[f"{name:^{width}}" for name, width in zip(header, widths, strict=True)], rule]
    for row in zip(*(cells for cells, _ in columns), strict=True):
        padded = [
            cell.rjust(width) if _is_number(cell) else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        lines.append(padded)
    return "".join("|" + "|".join(line) + "|\n" for line in lines)


def _digits(cells: Sequence[str]) -> tuple[list[str], bool]:
    """The cells of a column, and whether all of them are numbers: then they get as many digits as the longest needs."""
    if not any(cell.strip() for cell in cells) or not all(_is_number(cell) or not cell.strip() for cell in cells):
        return [str(int(float(cell))) if WHOLE.fullmatch(cell) else cell for cell in cells], False
    finite = [cell for cell in cells if cell.strip() and cell.lower() != "nan"]
    places = max((len(cell.rstrip("0").partition(".")[2]) if "." in cell else 0 for cell in finite), default=0)
    texts = [
        ("NaN" if cell.lower() == "nan" else f"{float(cell):.{places}f}") if cell.strip() else "" for cell in cells
    ]
    return texts, True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ordered(results: Mapping[str, Any], column: str) -> list[tuple[str, int]]:
    """Names with their depths: groups with their members below them, then the other tasks."""
    members, rows = results.get("group_subtasks", {}), results[column]
    inner = {name for each in members.values() for name in each}
    found: list[tuple[str, int]] = []
    depths: dict[str, int] = {}

    def visit(name: str, depth: int) -> None:
        depths[name] = depth
        found.extend([(name, depth)] if name in rows else [])
        for child in sorted(members.get(name, ())):
            visit(child, depth + 1)

    for name in sorted(members):
        if name not in inner:
            visit(name, 0)
    return [(name, depths[name]) for name, _ in found] + [(name, 0) for name in sorted(rows) if name not in depths]


def _error(stderr: Any) -> tuple[str, str]:
    if stderr is None:
        return "", ""
    return "±", f"{stderr:.4f}" if isinstance(stderr, int | float) else f"{stderr:>6}"


def setup_logging(verbosity: int | str = logging.INFO, *_: Any) -> logging.Logger:
    """Set the level of lm-eval's and assay's messages: LMEVAL_LOG_LEVEL, else the argument."""
    wanted = os.environ.get("LMEVAL_LOG_LEVEL") or verbosity
    level = logging.getLevelName(wanted.upper()) if isinstance(wanted, str) else wanted
    logging.basicConfig(format="%(asctime)s %(levelname)s [%(name)s] %(message)s", datefmt="%Y-%m-%d:%H:%M:%S")
    for name in ("lm_eval", "assay"):
        logging.getLogger(name).setLevel(level if isinstance(level, int) else logging.INFO)
    return logging.getLogger("lm_eval")


@lru_cache(1024)
def warning_once(logger: logging.Logger, msg: str, *args: Any) -> None:
    logger.warning(msg, *args)


@lru_cache(1024)
def info_once(logger: logging.Logger, msg: str, *args: Any) -> None:
    logger.info(msg, *args)


def handle_non_serializable(o: Any) -> Any:
    """A value for `json.dumps(default=…)`: numpy's numbers as numbers, sets as lists, anything else as text."""
    if hasattr(o, "item") and type(o).__module__ == "numpy" and not getattr(o, "ndim", 0):
        return o.item()
    return list(o) if isinstance(o, set | frozenset) else str(o)


class EnhancedJSONEncoder(json.JSONEncoder):
    """A JSON encoder that also writes dataclasses."""

    def default(self, o: Any) -> Any:
        return dataclasses.asdict(o) if dataclasses.is_dataclass(o) and not isinstance(o, type) else super().default(o)


def hash_string(string: str) -> str:
    return hashlib.sha256(string.encode("utf-8")).hexdigest()


def sanitize_model_name(model_name: str) -> str:
    """The folder of a model: signs that file systems do not take become `__`."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model_name)


def sanitize_task_name(task_name: str) -> str:
    return re.sub(r"\W", "_", task_name)


def sanitize_list(sub: Any) -> Any:
    """Nested lists and tuples with texts in them."""
    if isinstance(sub, tuple):
        return tuple(map(sanitize_list, sub))
    return [sanitize_list(item) for item in sub] if isinstance(sub, list) else str(sub)


def get_file_task_name(filename: str) -> str:
    """The task of samples_TASK_DATE.jsonl."""
    return filename[filename.find("_") + 1 : filename.rfind("_")]


def get_file_datetime(filename: str) -> str:
    """The date of results_DATE.json or samples_TASK_DATE.jsonl."""
    return filename[filename.rfind("_") + 1 :].rsplit(".", 1)[0]


def get_latest_filename(filenames: Iterable[str]) -> str:
    return max(filenames, key=get_file_datetime)


def get_results_filenames(filenames: Iterable[str]) -> list[str]:
    return [each for each in filenames if "/results_" in each and each.endswith(".json")]


def get_sample_results_filenames(filenames: Iterable[str]) -> list[str]:
    return [each for each in filenames if "/samples_" in each and each.endswith(".jsonl")]


def get_rolling_token_windows(
    token_list: Sequence[int], prefix_token: int, max_seq_len: int, context_len: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs of input and predicted tokens that predict every token of a text once."""
    tokens = list(token_list)
    first = min(max_seq_len, len(tokens))
    if first:
        yield [prefix_token, *tokens[: first - 1]], tokens[:first]
    step = max_seq_len - context_len + 1
    for start in range(first, len(tokens), step):
        end = min(start + step, len(tokens))
        yield tokens[end - max_seq_len - 1 : end - 1], tokens[start:end]


def make_disjoint_window(pair: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """A window whose context ends where its predicted tokens begin."""
    context, predicted = pair
    return context[: len(context) - (len(predicted) - 1)], predicted


def escaped_split(text: str, sep_char: str, maxsplit: int = -1) -> list[str]:
    """Split at a sign that no backslash precedes."""
    return re.split(rf"(?<!\\){re.escape(sep_char)}", text, maxsplit=max(maxsplit, 0))


def join_iters(iters: Iterable[Iterable[Any]]) -> Iterator[Any]:
    return itertools.chain.from_iterable(iters)


def create_iterator(
    raw_iterator: Iterable[Any], *, rank: int = 0, world_size: int = 1, limit: int | None = None
) -> Iterator[Any]:
    return itertools.islice(raw_iterator, rank, limit, world_size)


def random_name_id() -> str:
    """A name for a model without one."""
    return f"model_{random.getrandbits(32):08x}"


def is_torch_available() -> bool:
    return find_spec("torch") is not None


def is_transformers_available() -> bool:
    return find_spec("transformers") is not None


def wrap_text(string: str, width: int = 140, **kwargs: Any) -> str:
    return textwrap.fill(string, width, **kwargs)


def set_torch_seed(seed: int) -> None:
    if is_torch_available():
        import torch

        torch.manual_seed(seed)


def load_yaml_config(yaml_path: str | Path | None = None, *_: Any, **__: Any) -> Any:
    """The content of a YAML file; `!function` stays a name."""
    assert yaml_path is not None, "give yaml_path"
    return Source(str(yaml_path), Path(yaml_path).read_bytes()).value


def request_caching_arg_to_dict(cache_requests: str | None) -> dict[str, bool]:
    """The three options of lm-eval's --cache_requests; they have no effect here."""
    if cache_requests is None:
        return {}
    return {
        "cache_requests": cache_requests in ("true", "refresh"),
        "rewrite_requests_cache": cache_requests == "refresh",
        "delete_requests_cache": cache_requests == "delete",
    }


def remove_none_pattern(input_string: str) -> tuple[str, bool]:
    """A name of a metric without `,none` at its end, and whether it had that."""
    return input_string.removesuffix(",none"), input_string.endswith(",none")


def chunks(iter: Iterable[Any], n: int = 0, fn: Any = None) -> Iterator[list[Any]]:
    """Lists of n items, or of as many as `fn(index, items)` says."""
    part: list[Any] = []
    for index, item in enumerate(iter):
        part.append(item)
        if len(part) == (fn(index, iter) if fn else n):
            yield part
            part = []
    if part:
        yield part


def undistribute(iterable: Sequence[Sequence[Any]]) -> list[Any]:
    """The inverse of dealing items out in turn."""
    dealt = itertools.zip_longest(*iterable, fillvalue=chunks)
    return [item for turn in dealt for item in turn if item is not chunks]


def clear_torch_cache() -> None:
    if is_torch_available():
        import torch

        torch.cuda.empty_cache()


def get_dtype(dtype: Any) -> Any:
    """A type of torch by its name; `auto` and types stay."""
    if not isinstance(dtype, str) or dtype == "auto":
        return dtype
    import torch

    return getattr(torch, dtype)


def handle_stop_sequences(until: str | list[str] | None, eos: str | None) -> list[str]:
    """Stop strings as a list, with the end of text among them."""
    if until is not None and not isinstance(until, str | list):
        raise ValueError(f"Expected `kwargs['until']` to be of type Union[str,list] but got {until}")
    stops = [until] if isinstance(until, str) else list(until or ())
    return stops + ([eos] if eos is not None and eos not in stops else [])
