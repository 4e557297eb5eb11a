"""Units, dates and times of day: what makes answers differ whose numbers are equal."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from assay.scoring.metrics.math_text import NO_UNIT, answers_in, boxed, plain, unmarked

# --- units -----------------------------------------------------------------------------------------------------------

_SIZES = {
    "length": "m meter metre: 1, km kilometer kilometre: 1000, dm decimeter: 1/10, cm centimeter centimetre: 1/100, "
    "mm millimeter millimetre: 1/1000, in inch inches: 127/5000, ft foot feet: 381/1250, yd yard: 1143/1250, mi mile: 201168/125",
    "mass": "kg kilogram kilo: 1, g gram gramme: 1/1000, mg milligram: 1/1000000, lb lbs pound: 45359237/100000000, "
    "oz ounce: 45359237/1600000000, tonne: 1000",
    "time": "s sec second: 1, min minute: 60, h hr hour: 3600, day: 86400, week: 604800, ms millisecond: 1/1000",
    "months": "month: 1, yr year: 12",
    "dollars": "dollar usd: 1, ¢ cent: 1/100", "euros": "€ euro eur: 1", "pounds": "£ pound gbp: 1", "yen": "¥ yen jpy: 1",
    "rupees": "₹ rupee inr rs: 1", "yuan": "yuan cny: 1",
    "angle": "° degree deg: 1", "radians": "radian rad: 1", "celsius": "°c celsius °: 1", "fahrenheit": "°f fahrenheit °: 1",
    "temperature": "kelvin: 1", "volume": "l liter litre: 1, ml milliliter millilitre: 1/1000, gallon gal: 473176473/125000000",
}  # fmt: skip
"""By what is measured, the names of its units and their sizes."""
_SPEEDS = {"mph": "mi/h", "kph": "km/h", "kmph": "km/h", "kmh": "km/h", "fps": "ft/s"}
_GENERIC = re.compile("units?|total|ways?|times?|points?|numbers?|and|or|mod|in|of|is|are|because|since|not|each")
"""Words behind a number that say nothing about what is counted."""
_NAME = r"(?:°\s?[CF](?![A-Za-z])|degrees?\s(?:celsius|fahrenheit|[CF](?![A-Za-z]))|°|[€£¥₹¢]|(?!in\s+[a-z])[^\W\d_]+)"
_POWER = r"(?:\s?\^\s?\{?\s?([23])\s?\}?)?"
_UNIT = rf"(?:(square|sq\.?|cubic|cu\.?)\s)?({_NAME}){_POWER}(?:\s?(?:/|(?:per|an?|each)\s)\s?({_NAME}){_POWER})?(?![A-Za-z])"
_BEHIND = re.compile(rf"(?:[\d)}}\]π]\.?|\\pi)(\s?){_UNIT}", re.IGNORECASE)
_AT_END = re.compile(rf"{_BEHIND.pattern}[\s.!]*$", re.IGNORECASE)
_ALONE = re.compile(rf"\s*[-+]?[\d.,/ ]*{_BEHIND.pattern}[\s.!]*", re.IGNORECASE)
_BEFORE = re.compile(r"(?<!\w)([€£¥₹]|USD|EUR|GBP|INR)\s?[-+]?(?=[\d.])")
_PERCENT = re.compile(r"(?:%|\bper\s?cent)[\s$.!}]*$", re.IGNORECASE)
_DEGREES = re.compile(r"\s?\^\s?\{?\s?\\circ\s?\}?|\\degree(?![a-z])|\\circ(?![a-z])")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as the powers of what it measures, and its size."""

    of: tuple[tuple[str, int], ...]
    size: Fraction
    known: bool = True


def units_apart(target: str, answer: str) -> Fraction | None:
    """How many units of the target one unit of the answer is; None where they measure different things.

    >>> units_apart("5 cm", "5 km"), units_apart("5 cm", "5"), units_apart("5 cm", "The length is 5 cm^2.")
    (Fraction(100000, 1), Fraction(1, 1), None)
    """
    expected = _unit_of_target(target)
    if _PERCENT.search(target):
        actual = _unit_of_answer(answer)
        return None if any(each.known for each in actual) else Fraction(1)
    if any(each.known for each in expected) and _PERCENT.search(answer):
        return None
    actual = _unit_of_answer(answer) if expected else []
    if not expected or not actual:
        return Fraction(1)
    sizes = [other.size / one.size for one in expected for other in actual if one.of == other.of]
    return min(sizes, key=lambda size: size != 1) if sizes else None


def _unit_of_target(text: str) -> list[Unit]:
    text = _measured(text)
    if sign := _currency(text):
        return _named(sign)
    match = _AT_END.search(text)
    return _unit(match) if match else []


def _unit_of_answer(text: str) -> list[Unit]:
    """The unit behind the number that is named as the answer: the first after "the answer is", else the last."""
    readings = answers_in(text)
    named = _measured(readings[-1])
    if sign := _currency(named):
        return _named(sign)
    if alone := _ALONE.fullmatch(named):
        return _unit(alone)
    behind_box = text[text.find(readings[1]) + len(readings[1]) :][:60] if r"\boxed" in text else ""
    text = f"{named} {_measured(behind_box).lstrip(' })].')}" if behind_box else named
    units = [unit for match in _BEHIND.finditer(text) if (unit := _unit(match)) and all(each.known for each in unit)]
    return units[0 if len(readings) > 2 else -1] if units else []


def _measured(text: str) -> str:
    """A text without marks, with the dollar sign as a word where it is none of the marks."""
    text = text.replace(r"\$", " USD ")
    if text.count("$") % 2:
        text = re.sub(r"\$\s?(?=[\d.])|(?<=\d)\s?\$", " USD ", text)
    return " ".join(unmarked(_DEGREES.sub("°", text)).split())


def _currency(text: str) -> str:
    signs = _BEFORE.findall(text)
    return signs[-1] if signs else ""


def _unit(match: re.Match[str]) -> list[Unit]:
    """The units that a match may mean. A letter glued to its number is a variable, and so is a short word that is not a unit."""
    space, shape, name, power, per, per_power = match.groups()
    units = _named(name)
    if not units or (not space and (len(name) == 1 and name.isalpha())) or (not space and not units[0].known):
        return []
    raised = {"s": 2, "c": 3}[shape[0].lower()] if shape else int(power or 1)
    if per is None:
        return [_raised(unit, raised) for unit in units]
    return [
        _times(_raised(unit, raised), _raised(other, -int(per_power or 1))) for unit in units for other in _named(per)
    ]


@cache
def _named(name: str) -> list[Unit]:
    folded = re.sub(r"^degrees? ", "°", " ".join(name.split()).casefold().rstrip(".")).replace("° ", "°")
    folded = {"°celsius": "°c", "°fahrenheit": "°f"}.get(folded, folded)
    if speed := _SPEEDS.get(folded):
        above, below = speed.split("/")
        return [_times(_named(above)[0], _raised(_named(below)[0], -1))]
    for singular in (folded, folded.removesuffix("s")):
        if units := _units().get(singular):
            return units
    if len(folded) < 3 or _GENERIC.fullmatch(folded) or NO_UNIT.fullmatch(folded):
        return []
    return [Unit(((re.sub(r"(?:ie|y|e)?s?$", "", folded), 1),), Fraction(1), known=False)]


@cache
def _units() -> dict[str, list[Unit]]:
    units: dict[str, list[Unit]] = {}
    for measured, listed in _SIZES.items():
        of, power = ("length", 3) if measured == "volume" else (measured, 1)
        for names, size in (each.split(": ") for each in listed.split(", ")):
            unit = Unit(
                ((of, power),), Fraction(size) / (1000 if power == 3 else 1)
            )  # a litre is 1/1000 of a cubic metre
            for name in names.split():
                units.setdefault(name, []).append(unit)
    units["degree"] = units["deg"] = units["°"]
    return units


def _raised(unit: Unit, power: int) -> Unit:
    return Unit(tuple((of, each * power) for of, each in unit.of), unit.size**power, unit.known)


def _times(one: Unit, other: Unit) -> Unit:
    powers = dict(one.of)
    for of, power in other.of:
        powers[of] = powers.get(of, 0) + power
    measured = tuple(sorted((name, power) for name, power in powers.items() if power))
    return Unit(measured, one.size * other.size, one.known and other.known)


# --- dates and times of day ------------------------------------------------------------------------------------------

_DATE = r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})"
_CLOCK = r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?"
_MOMENT = re.compile(rf"(?<![\w./:-])(?:{_DATE}|{_CLOCK})(?![\w/:]|[-.]\d)")


_NAMED_TIME = re.compile(
    rf"(?<![\w./:-])(?:{_DATE}|{_CLOCK})(?:\s?(?P<name>[ap]\.?m\.?(?!\w)|[A-Za-z][A-Za-z']*))?(?![\w/:])", re.IGNORECASE
)
_HALVES = {"noon": "pm", "midnight": "am"}
_NO_HALF = (
    "hours",
    "hour",
    "hrs",
    "h",
    "o'clock",
    "oclock",
    "sharp",
    "exactly",
    "because",
    "since",
    "and",
    "is",
    "in",
    "on",
)


def same_moment(target: str, answer: str) -> bool | None:
    """Whether an answer has the date or the time of day that its target is; None where the target is neither.

    >>> same_moment("2020-05-04", "2020-04-05"), same_moment("08:30", "It is 8:30."), same_moment("3:4", "6:8")
    (False, True, None)
    """
    expected = _MOMENT.fullmatch(unmarked(target).strip(" ."))
    if expected is None:
        return _same_named_time(target, answer)
    match = list(_MOMENT.finditer(unmarked(answers_in(answer)[-1])))
    if match:
        return _numbers(expected) == _numbers(match[-1])
    return re.findall(r"\d+", plain(answer)) == re.findall(r"\d+", target) and ":" in target and ":" not in answer


def _same_named_time(target: str, answer: str) -> bool | None:
    """Whether an answer has the time of a target with a word behind it, such as `12:00 noon`; None where it is not that.

    >>> _same_named_time("12:00 noon", "12:00 midnight"), _same_named_time("2:00 EST", "At 2:00."), _same_named_time("3", "3")
    (False, True, None)
    """
    expected = _NAMED_TIME.fullmatch(unmarked(target).strip(" ."))
    if expected is None:
        return None
    times = list(_NAMED_TIME.finditer(unmarked(answers_in(answer)[-1])))
    if not times:
        return False
    ours, theirs = (_HALVES.get(name, name) for name in (_time_name(expected), _time_name(times[-1])))
    return _numbers(expected) == _numbers(times[-1]) and (not ours or not theirs or ours == theirs)


def _time_name(moment: re.Match[str]) -> str:
    name = (moment["name"] or "").casefold().replace(".", "")
    return "" if name in _NO_HALF else name


def _numbers(moment: re.Match[str]) -> list[tuple[int, int]]:
    """The numbers of a date or time with their places. Seconds that are 0 need not be said."""
    numbers = [(place, int(number)) for place, number in enumerate(moment.groups()[:9]) if number is not None]
    return [pair for pair in numbers if pair != (8, 0)]


# --- ratios of three and more parts ----------------------------------------------------------------------------------

_PART = r"\d+(?:\.\d+)?"
_RATIO = re.compile(rf"(?<![\w.:/]){_PART}(?:\s?(?::|\\colon(?![a-z]))\s?{_PART}){{2,}}(?![\w:/]|\.\d)")


def same_ratio(target: str, answer: str) -> bool | None:
    """Whether a ratio of three or more parts is the same up to a factor; None where the target is not such a ratio.

    >>> same_ratio("1:2:3", "1:3:2"), same_ratio("1:2:3", "It is 2:4:6."), same_ratio("3:4", "6:8")
    (False, True, None)
    """
    expected = _RATIO.fullmatch(unmarked(boxed(target)).strip(" ."))
    if expected is None:
        return None
    ratios = _RATIO.findall(unmarked(answers_in(answer)[-1]))
    return bool(ratios) and _shares(expected[0]) == _shares(ratios[-1])


def _shares(ratio: str) -> list[Fraction]:
    parts = [Fraction(part) for part in re.findall(_PART, ratio)]
    return [part / (sum(parts) or 1) for part in parts]


# --- numbers of other bases ------------------------------------------------------------------------------------------

_BASED = re.compile(r"(?<![\w.}^_])([0-9A-Za-z]{0,30}\d[0-9A-Za-z]{0,30}) ?_ ?\{? ?(?:\\text\{)? ?(\d{1,2})\b ?\}?")


def same_base(target: str, answer: str) -> bool | None:
    """Whether numbers with a base are the same; None where neither has one. A target with a base needs an answer with it.

    >>> same_base("204_5", "204_{6}"), same_base("204_5", "204"), same_base("54", "204_5"), same_base("x_1", "1")
    (False, False, True, None)
    """
    if "_" not in target and "_" not in answer:
        return None
    expected, actual = (_BASED.findall(answers_in(text)[-1]) for text in (target, answer))
    if not expected and not actual:
        return None
    if len(expected) > 1 or len(actual) > 1 or not _BASED.fullmatch((target if expected else answer).strip(" $.")):
        return None
    if not expected:
        digits, base = actual[0]
        return str(_in_base(digits, int(base))) == boxed(target).strip(" $.")
    if not actual:
        return bool(expected[0] == (answers_in(answer)[-1].strip(" $."), "10"))
    ours, theirs = ((digits.lstrip("0").casefold(), base) for digits, base in (expected[0], actual[0]))
    return bool(ours == theirs)


def _in_base(digits: str, base: int) -> int | None:
    try:
        return int(digits, base)
    except ValueError:
        return None
