"""Arrow arrays of Python values, built from buffers.

`pa.array`, `pa.repeat` and `pa.scalar` ask whether a value is of pandas, and import it to find out wherever it is installed:
0.2 s and 40 MB of every run, for nothing. Buffers ask nothing. Of 57,000 samples (`python -m bench.sample_arrays`, CPU ms, buffers
against `pa.array(rows, type=STRUCT)`): texts 7 and 2, requests of four choices 20 and 19, log-likelihoods 126 and 183, texts with
usage 96 and 48, answers 16 and 46; importing pandas 161. So `pa.array` would pay from about 280,000 generations on, and for
choices never.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.records import AnyJSON
from assay.runs.samples.schema import FLOAT, INT, TEXT, TRUTH, Array
from assay.user_code import written

LARGEST = 2**31 - 1
"""Where the last text of an array may end: offsets have 32 bits."""


def text_array(values: Sequence[str | None]) -> Array:
    """An array of texts; half a character, which UTF-8 cannot have, is written as its number."""
    import pyarrow as pa

    texts: Sequence[Any] = values
    missing = 0
    try:
        whole = "".join(texts)
    except TypeError:  # to look for None in a list takes longer than to join it
        missing = values.count(None)
        if missing == len(values):
            return pa.nulls(len(values), pa.string())
        texts = [text or "" for text in values]
        whole = "".join(texts)
    if whole.isascii():
        content, lengths = whole.encode(), map(len, texts)
    else:
        pieces = _encode(texts)
        content, lengths = b"".join(pieces), map(len, pieces)
    if len(content) > LARGEST:
        return pa.array(values, pa.string())  # in several chunks: worth the import of pandas
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, len(values)), out=offsets[1:])
    buffers = [_presence(values) if missing else None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers, missing)


def _encode(texts: Sequence[str]) -> list[bytes]:
    try:
        return [*map(str.encode, texts)]
    except UnicodeEncodeError:  # half a character
        return [written(text).encode() for text in texts]


def int_array(values: Sequence[int | None]) -> Array:
    """An array of whole numbers; anything else is a TypeError, as with a list that is too long an OverflowError."""
    import pyarrow as pa

    return _number_array("q", values, pa.int64())


def float_array(values: Sequence[float | None]) -> Array:
    import pyarrow as pa

    return _number_array("d", values, pa.float64())


def int32_array(values: Sequence[int | None]) -> Array:
    """Where lists begin and end, None where one is missing; or the numbers of a dictionary's texts."""
    import pyarrow as pa

    return _number_array("i", values, pa.int32())


def _number_array(code: str, values: Sequence[Any], kind: Any) -> Array:
    import pyarrow as pa

    missing = 0
    try:
        numbers = array(code, values)
    except TypeError:
        missing = values.count(None)
        if missing == len(values):
            return pa.nulls(len(values), kind)
        numbers = array(code, [0 if value is None else value for value in values])
    buffers = [_presence(values) if missing else None, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(values), buffers, missing)


def truth_array(values: Sequence[bool | None]) -> Array:
    import pyarrow as pa

    missing = 0
    try:
        flags = np.frombuffer(bytes(values), np.bool_)  # type: ignore[arg-type]  # None is a TypeError
    except TypeError:
        missing = values.count(None)
        flags = np.array(values, np.bool_)
    buffers = [_presence(values) if missing else None, _bits(flags)]
    return pa.Array.from_buffers(pa.bool_(), len(values), buffers, missing)


def _presence(values: Sequence[object]) -> Any:
    """The bits that say which values are there."""
    return _bits(np.array([value is not None for value in values], np.bool_))


def _bits(flags: Any) -> Any:
    import pyarrow as pa

    return pa.py_buffer(np.packbits(flags, bitorder="little"))


ARRAYS: dict[str, Callable[[Sequence[AnyJSON]], Array]] = {
    TEXT: text_array,
    INT: int_array,
    FLOAT: float_array,
    TRUTH: truth_array,
}
