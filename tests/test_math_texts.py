"""How units, bases, boxes and words are read in answers of calculations, without a formula being computed."""

from fractions import Fraction

import pytest

from assay.scoring.metrics.math_said import in_figures
from assay.scoring.metrics.math_text import boxed, formulas, is_in_braces, joined_by
from assay.scoring.metrics.math_units import same_base, same_moment, same_ratio, units_apart


@pytest.mark.parametrize(
    ("target", "answer", "apart"),
    [
        ("60 mph", "60 mi/h", Fraction(1)),
        ("1 fps", "1 ft/s", Fraction(1)),
        ("1 mph", "1 km/h", Fraction(1_000_000, 1_609_344)),  # a mile is 1.609344 km
        ("5 ft", "5 in", Fraction(1, 12)),
        ("3 square feet", "3 ft^2", Fraction(1)),
        ("2 liters", "2000 ml", Fraction(1, 1000)),
        (r"\$5", "5 cents", Fraction(1, 100)),
        ("5 km", r"\boxed{5} cm", Fraction(1, 100_000)),
        ("5 apples", "5 apple", Fraction(1)),
        ("5 apples", "5 oranges", None),
        ("5 cm", "5 kg", None),
        ("5 units", "5 cm", Fraction(1)),  # a word that says nothing about what is counted
        ("5 ox", "5 cm", Fraction(1)),  # too short for a word that is not a unit
        ("5 %", "5", Fraction(1)),
        ("5 %", "5 cm", None),
        ("5 cm", "5 %", None),
    ],
)
def test_units_of_one_kind_are_so_many_of_each_other(target: str, answer: str, apart: Fraction | None) -> None:
    assert units_apart(target, answer) == apart


@pytest.mark.parametrize(
    ("target", "answer", "same"),
    [
        ("5", "101_2", True),
        ("4", "101_2", False),
        ("6", "101_2", False),
        ("5", "201_2", False),  # there is no 2 in base 2
        ("204_5", "0204_{5}", True),
        ("204_5", "204_6", False),
        ("204_5", "204", False),
        ("204_{10}", "204", True),
        ("1aF_{16}", "1AF_{16}", True),
        ("x", "y", None),
        ("x_1", "x_1", None),
    ],
)
def test_a_number_with_a_base_is_compared_by_its_digits_or_its_value(
    target: str, answer: str, same: bool | None
) -> None:
    assert same_base(target, answer) is same


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5} it is}", "5"),
        (r"\boxed{\frac{1}{2}} and {x}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{5", "5"),
        (r"\boxed{1} or \boxed{2}", r"\boxed{1} or \boxed{2}"),
        (r"\boxed 5", r"\boxed 5"),
        ("5", "5"),
    ],
)
def test_what_is_in_the_one_box_of_a_text_is_its_content(text: str, content: str) -> None:
    assert boxed(text) == content


def test_words_and_signs_around_a_formula_are_told_from_it() -> None:
    assert formulas("So the answer is sin x, as was said.") == [r"$\sin x$"]
    assert [is_in_braces(text) for text in (r"\{1, 2\}", "{1}", r"\lbrace 1 \rbrace", "(1, 2)", "{1} or {2", "x{1}")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert [joined_by(text) for text in ("1 and 2", "1 OR 2", "1 and 2 or 3", "sand", "1, 2")] == [
        "and",
        "or",
        "",
        "",
        "",
    ]
    assert (same_moment("8:30", "It is 08:30."), same_moment("8:30", "It is 8:31.")) == (True, False)
    assert (same_ratio("1:2:3", "2:4:6"), same_ratio("1:2:3", "2:4:7"), same_ratio("1:2", "2:4")) == (True, False, None)


def test_numbers_in_words_are_written_in_figures() -> None:
    assert in_figures("2 million") == "2000000"
    assert in_figures("y = 2, x = 1") == "x = 1, y = 2"
    assert in_figures("x = 1, y = 2") == "x = 1, y = 2"
    assert in_figures("x = 1, x = 2") == "x = 1, x = 2"
