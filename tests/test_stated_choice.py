"""The choice that a chat model's answer states, in a table of answers with verdicts by hand; and end to end over HTTP."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import ConfigError, TaskManager, simple_evaluate
from assay.models import Scripted
from assay.scoring.filters import FILTERS
from assay.scoring.stated_choice import labels_of, stated_choice
from serving import Arrived, loopback
from small_runs import filtered, generate, run, write_task

COLORS = ("red", "blue", "green", "yellow")

# fmt: off
STATED: dict[str, list[str]] = {
    'A': [
        "I'm between A and B, leaning A.",
        'A, though B is close.',
        'Not sure, maybe A',
        'A. The sky is blue.',
        'Suppose B is correct. Then the sky would be green, a contradiction. So A.',
        'The answer is a.',
        'a',
        'A',
        'The answer is A.',
        'The best answer is A because fire is red.',
        'A is the best answer.',
        'A red apple is common. The best answer is A.',
        'A?',
        'A, I guess.',
        'I guess A.',
        'Could be A.',
        'A.',
        'A.\n',
        'A)',
        'A: red',
        '"A"',
        'The best answer is A, red.',
        'The best answer is A) red',
        'The best answer is A (red)',
        'The best answer is A - red.',
        'The best answer is A — red.',
        'The best answer is A red',
    ],
    'B': [
        'The correct answer is **B. blue**.',
        'The correct answer is B: Blue',
        'B. Blue is the color of the sky.',
        'Based on the options provided, the best answer is **B**.',
        'After analyzing: A (red) - no. B (blue) - yes. C (green) - no. So final: B',
        'A: No\nB: Yes\nC: No\nD: No',
        'B\n\nThe sky is not red.',
        'The best answer is blue because red is warm.',
        'My answer would be A, but B is the correct one.',
        'If the answer is A, then fire is cold. But fire is hot, so B.',
        "The answer would be A if the sky were red, but it's blue.",
        'Most people think A. It is B.',
        "I first thought red, but it's blue.",
        "I think it's B because A is the color of fire.",
        'The sky is not red. It is not green either. The best answer is B.',
        'A is wrong; the answer is B',
        'Not A, but B.',
        'not A but B',
        'The answer is not A, but B.',
        'The answer is B, not A.',
        'B, not A',
        "The answer isn't A. It's B.",
        'Let me think. Red is the color of fire. Blue is the color of the sky.\n\nThe best answer is B.',
        "The answer is A. Wait, no, it's B.",
        "The answer is A. Actually, it's blue.",
        'The answer is B. A is wrong because red is warm.',
        'The answer is B. Option A is incorrect, option C is incorrect.',
        'A: incorrect. B: correct. C: incorrect.',
        'A) red - wrong\nB) blue - correct\nC) green - wrong',
        'A. red\nB. blue\nC. green\nD. yellow\nThe best answer is B.',
        'Final Answer: $\\boxed{B}$',
        'B is better than A.',
        'It might be A, but the answer is B.',
        'Is it A? No. The answer is B.',
        'Is it A? No.\nB',
        'the answer is b',
        'b)',
        '(b) blue',
        'A blue sky is what we see, so the best answer is B.',
        'The sky appears blue.',
        "It's blue, not red.",
        'The color is blue.',
        'I was torn between A and B, but the best answer is B.',
        'Between A and B, B is the better choice.',
        'The answer is B rather than A.',
        'The answer is B instead of A.',
        'I prefer B over A.',
        'Option B.',
        'Choice (B)',
        'Answer B',
        'Answer is B',
        'Ans: B',
        'My answer is B, although A is also possible.',
        'The statement in A is false, the statement in B is true.',
        'The answer is B. (Not A.)',
        "Let's see. A: red, which is warm. B: blue, which is cold. The best answer is B.",
        'Hmm, B.',
        'A\n\nWait, no.\n\nB',
        'The best answer is B blue',
    ],
    'C': [
        'C.)',
        '(C',
        'Option: C',
        'Response: C',
        'The best answer is [answer_letter]: C',
        'C, final answer.',
        'C is my final answer.',
        "C, that's my answer.",
        "Let's go with C!",
        'We can eliminate A, B and D, so the answer must be C.',
        'C',
        'C.',
        '(C)',
        '**C**',
        'c',
        'The best answer is C.',
        'The best answer is **C**.',
        'Answer: C',
        '**Answer:** C',
        'Answer: **C**',
        'answer c',
        'The answer is (C).',
        'The answer is [C]',
        'C) green',
        'C. green',
        'C: green',
        '(C) green',
        '**C) green**',
        '**C.** Green',
        'green',
        'Green.',
        'The answer is green.',
        'The best answer is "green".',
        'The correct option is C because green is the color of grass.',
        'neither A nor B, but C',
        'Neither A nor B is right, so C.',
        'A is too dark, B is too cold.\nC',
        'Option A is incorrect, B is incorrect, C is correct.',
        'I choose C',
        'I would go with option C.',
        "I'd pick (c).",
        '\\boxed{\\text{C}}',
        '<answer>C</answer>',
        '### Answer\nC',
        'The best answer is:\n\nC',
        'The best answer is\n\n**C) green**',
        'The correct answer is C, green.',
        'The correct answer is green (C).',
        'The correct answer is green, which is option C.',
        'C because grass is green',
        'C, since grass is green.',
        'C - green',
        "I don't think it's A. It must be C.",
        ' C\n\nExplanation: A is wrong.',
        ' C. Grass reflects green light, and A absorbs it.',
        'The best answer is C\n\nGiven the following question and 4 candidate answers (A, B, C and D), choose the best answer.',
        'Options A and B can be ruled out. D does not fit. That leaves C.',
        'Green, definitely.',
        'Definitely green!',
        'The best answer is [C].',
        'The best answer is "C".',
        "The best answer is 'C'.",
        'The best answer is C!',
        'the best answer is: c',
        'THE BEST ANSWER IS C',
        'Best answer: C) green.',
        'Sure! The best answer is C.',
        "Sure! Here's the answer:\n\n**The best answer is C.**",
        'The best answer is option C.',
        'The best answer is answer C.',
        'The best answer is letter C.',
        'Correct option: (C) green',
        'The best answer is E, but among the options C.',
        'The answer is C.\n\nThe best answer is C.',
        'Of A and C, the best answer is C',
        'The answer is C. A and B are wrong.',
        'Both A and B seem plausible, but the best answer is C.',
        "A and C look right, but I'd go with C.",
        'Looking at the options: A is red, B is blue, C is green. The grass is green. So the answer is C.',
        'Looking at the options:\n- A: red\n- B: blue\n- C: green\n\nGrass is green, so C.',
        'Step 1: look.\nStep 2: think.\nTherefore the answer is C',
        "I'd rule out A and D. Between B and C, C is the best.",
        'C.\n\nExplanation: The color of the grass is green. Red (A) and blue (B) are not.',
        'The best answer is C (green), since A (red) is the color of fire.',
        'The best answer is C. A good example is grass.',
        'C is the best answer, A would be the second best.',
        'The best answer is C, and the second-best is A.',
        'Although A might seem right, C is the best answer.',
        'C is the best answer, though A might also be acceptable.',
        'My first thought was A; on reflection, C.',
        'If I had to choose, C.',
        'The grass is green → C',
        'Grass is green (C).',
        'Grass is green. (C)',
        'C C C',
        'The best answer is _C_.',
        'The best answer is `C`',
        '<b>C</b>',
        'C</s>',
        'Option C is the one that fits.',
        "I believe that the best answer is C: green. Here's why: A is red, and D is yellow.",
        'Choice C is correct. Choices A, B, and D are incorrect.',
        'Correct answer: C\nIncorrect answers: A, B, D',
        "It's between B and C. I'd lean towards C.",
        'the answer is c) green',
        'Question: What color is grass?\nA. red\nB. blue\nC. green\nD. yellow\nYour response should end with "The best answer is [answer_letter]", where [answer_letter] is one of A, B, C or D.\nThe best answer is C',
        'To find the color of grass, we note that chlorophyll reflects green light.\n\nThe best answer is C.',
        '**Reasoning:** chlorophyll reflects green light.\n\n**The best answer is C.**',
        'The best answer is **C**\n\n**Explanation:** Option A (red) and option B (blue) do not match.',
        'The best answer is C. Red and blue are not colors of grass.',
        'Grass is green, not red or blue.',
        'Grass is neither red nor blue but green.',
        "It's red... no, wait, green.",
        'The best answer is:C',
        'Answer:C',
        'answer=C',
        '{"answer": "C"}',
        '{"answer": "C", "reason": "A is red"}',
        '[[C]]',
        'C is right.',
        'I am confident that it is C.',
        'The best answer is C. I am confident in this answer.',
        'The best answer is C. Let me know if you have any questions!',
        'The best answer is C. Would you like to know why A is wrong?',
        'The best answer is letter (C).',
    ],
    'D': [
        'Initially: C. Finally: D.',
        'D. None of the others fit.',
        'The answer has to be D.',
        'The only option that makes sense is D.',
        'Only D makes sense.',
        'D makes the most sense.',
        'D seems to be the best choice.',
        'D is the most likely answer.',
        'D is the only color that fits.',
        'It is D, not C.',
        "It's D; C is a distractor.",
        'D (yellow), because bananas are yellow when ripe and green (C) when unripe.',
        'Bananas are yellow when ripe, so the answer is D. They are green (C) before.',
        'To answer this question, consider the color of a banana. A banana is yellow. Therefore, the best answer is D.',
        "It's D, C is a distractor.",
        'First I considered A. Then B. Finally, the answer is D.',
        'My final answer: D',
        'Therefore, the best choice would be D.',
        'Thus (D).',
        'Hence D',
        'D is the best answer.',
        'D it is.',
        'D is correct, A is not.',
        'Eliminating A and B, we have D.',
        'Answer: C or D? I think D.',
        'The best answer is D. yellow',
        'The best answer is D.yellow',
        'D.yellow',
    ],
    '': [
        'Answer: (B) or (C)',
        "It's a tie between A and B.",
        "Can't be A or B, so C or D",
        'Definitely not A.',
        'All except A.',
        'The answer is the second option.',
        'I would say that both A and D could be right.',
        "I don't have enough information to choose between A, B, C and D.",
        'I refuse to answer.',
        'The question is ambiguous; A and B are both acceptable.',
        'A and/or B',
        'Either A or B would work.',
        'One of A, B.',
        'It is hard to say. A? B?',
        'Answer: none',
        'N/A',
        '???',
        '...',
        'A; B',
        'A, B and C are correct.',
        'A, C is also correct.',
        'Only A and B fit.',
        'A or B',
        'either A or C',
        'A and B',
        'Both A and B',
        'The best answer is A or B.',
        'The answer is either A or C.',
        'A/B',
        'A, B',
        'A and B are both correct.',
        'A dog is a friendly animal.',
        'A bird can fly',
        'I am not sure.',
        'I cannot answer that.',
        "I'm sorry, but I can't help with that.",
        'not only A but also B',
        'A. red\nB. blue\nC. green\nD. yellow',
        'A\nB',
        'A B C D',
        'AB',
        'The answer is red (C).',
        'It could be A or it could be B.',
        'It could be A. It could be B.',
        'The answer is B, but it could also be C.',
        "I'd say A. Or maybe B.",
        'Probably A, maybe B.',
        'The answer is A. However, C is also correct.',
        'A (or B)',
        'A, but maybe B',
        'A & C',
        'None of the above.',
        'All of them are correct.',
        "I don't know.",
        'As an AI language model, I cannot choose between A and B.',
        "I can't say A is right.",
        "I don't think it's A.",
        'The answer is A dog.',
        'The answer is a dog.',
        'Vitamin C is important.',
        'Plan B is better.',
        'It is caused by a lack of vitamin C.',
        'red or blue',
        'Either red or blue.',
        'The answer is E.',
        'E',
        'C/D',
        'The best answer is not given.',
        'The best answer is none of these.',
        'I would choose neither.',
        "I'm sorry, I can't choose an option like A.",
        'I cannot determine the answer: A, B, C, D',
        'I think the answer is C, but it could be B.',
        'So the answer is C, right?',
        'The color of grass is green. Fire is red.',
        'Ответ: Б',
    ],
}
# fmt: on


@pytest.mark.parametrize(("answer", "label"), [(answer, label) for label in STATED for answer in STATED[label]])
def test_the_choice_that_an_answer_states(answer: str, label: str) -> None:
    """The choices are A red, B blue, C green, D yellow; "" is an answer that earns nothing."""
    number = stated_choice(answer, "ABCD", COLORS)
    assert ("ABCD"[number] if number is not None else "") == label


Verdicts = Mapping[str, str | None]
OTHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], Verdicts]] = {
    "numbers": (
        ("1", "2", "3", "4"),
        ("red", "blue", "green", "yellow"),
        {
            "2": "2",
            "The answer is 2.": "2",
            "(2)": "2",
            "2) blue": "2",
            "2. blue": "2",
            "The answer is 2.5": None,
            "The answer is 2 or 3.": None,
            "1. First, look at the sky.\n2. Then think.\nThe best answer is 3.": "3",
            "There are 2 apples and 3 pears, so 4.": "4",
            "The answer is 4 because 2+2=4": "4",
            "2+2=4": None,
            "It needs 3 kg": None,
            "1/2": None,
            "10": None,
            "The answer is #3": None,
            "Option 3": "3",
        },
    ),
    "Roman numbers": (
        ("i", "ii", "iii"),
        ("x1", "y1", "z1"),
        {
            "ii": "ii",
            "The answer is ii.": "ii",
            "I think the answer is iii": "iii",
            "(i)": "i",
            "I": "i",
            "I don't know": None,
            "The best answer is i.": "i",
            "i or ii": None,
            "III": "iii",
        },
    ),
    "Cyrillic": (
        ("А", "Б", "В"),
        ("красный", "синий", "зелёный"),
        {"Б": "Б", "The best answer is Б.": "Б", "Ответ: Б": "Б", "(Б) синий": "Б", "синий": "Б", "А или Б": None},
    ),
    "Greek": (
        ("α", "β"),
        ("one", "two"),
        {"β": "β", "The answer is β": "β", "α or β": None},
    ),
    "Chinese": (
        ("甲", "乙"),
        ("红", "蓝"),
        {"乙": "乙", "The best answer is 乙。": "乙"},
    ),
    "Chinese texts": (
        ("A", "B", "C", "D"),
        ("红", "蓝", "绿", "黄"),
        {"B. 蓝": "B"},
    ),
    "words": (
        ("yes", "no"),
        (),
        {
            "Yes": "yes",
            "No.": "no",
            "Yes, because it is.": "yes",
            "The answer is no.": "no",
            "No, the answer is yes.": "yes",
            "yes or no": None,
            "yes and no": None,
        },
    ),
    "truth": (
        ("True", "False"),
        (),
        {"True": "True", "The statement is false.": "False", "This is not true.": None},
    ),
    "choices that contain others": (
        ("A", "B", "C", "D"),
        ("red", "dark red", "A and B", "all of the above"),
        {
            "The answer is dark red.": "B",
            "Dark red": "B",
            "red": "A",
            "The answer is A and B.": "C",
            "A and B": "C",
            "All of the above.": "D",
            "The best answer is D) all of the above": "D",
            "C": "C",
            "The best answer is C": "C",
            "A or B": None,
            "B (dark red)": "B",
            "D. All of the above": "D",
        },
    ),
    "letters within choices": (
        ("A", "B", "C", "D"),
        ("B cells", "T cells", "Plan A", "vitamin C"),
        {
            "B cells": "A",
            "B": "B",
            "The answer is B cells.": "A",
            "The best answer is B.": "B",
            "Vitamin C": "D",
            "The answer is vitamin C.": "D",
            "D) vitamin C": "D",
            "Plan A": "C",
            "T cells, not B cells.": "B",
            "C. Plan A": "C",
            "The best answer is A. B cells make antibodies.": "A",
        },
    ),
    "choices that are numbers": (
        ("A", "B", "C", "D"),
        ("3", "5", "4", "1.5"),
        {
            "4": "C",
            "The answer is 4.": "C",
            "The answer is 5.": "B",
            "1.5": "D",
            "The answer is 15": None,
            "The answer is 3.5": None,
            "2 + 2 = 4, so the best answer is C": "C",
            "-3": None,
            "B) 5": "B",
            "The answer is B. 3 + 2 = 5": "B",
            "$5$": "B",
        },
    ),
    "choices with articles": (
        ("A", "B", "C", "D"),
        ("a dog", "a cat", "an owl", "the fish"),
        {
            "A dog": "A",
            "a dog": "A",
            "dog": "A",
            "A cat": "B",
            "The best answer is A cat": "B",
            "The answer is a cat.": "B",
            "A": "A",
            "An owl.": "C",
            "B) a cat": "B",
        },
    ),
    "choices after an article": (
        ("A", "B", "C", "D"),
        ("dog", "cat", "owl", "fish"),
        {
            "A dog": "A",
            "A cat": "B",
            "The answer is A cat.": "B",
            "A dog barks, so the answer is A.": "A",
            "A cat does not bark. A dog does. So: A": "A",
            "The dog": "A",
            "It is a dog.": "A",
            "A dog or a cat": None,
            "It's not a dog, it's a cat": "B",
        },
    ),
    "choices with negations": (
        ("A", "B", "C", "D"),
        ("increase", "decrease", "no change", "not enough information"),
        {
            "No change.": "C",
            "There would be no change.": "C",
            "Not enough information": "D",
            "The answer is D: not enough information.": "D",
            "It would not increase but decrease.": "B",
            "Decrease": "B",
            "increase or decrease": None,
            "It will increase. Final answer: A": "A",
        },
    ),
    "choices that are labels": (
        ("A", "B", "C", "D"),
        ("A", "B", "C", "D"),
        {"A": "A", "The answer is B": "B", "(C)": "C", "A dog": None, "A or B": None},
    ),
    "choices that are not known": (
        ("A", "B", "C", "D"),
        (),
        {
            "A": "A",
            "The answer is B": "B",
            "(C)": "C",
            "C) blue": "C",
            "A dog": None,
            "A or B": None,
            "C. blue": "C",
            "Answer: C": "C",
        },
    ),
    "more than 26": (
        (*labels_of("letters", 30),),
        tuple(f"c{n}" for n in range(30)),
        {
            "AC": "AC",
            "The answer is AC.": "AC",
            "I think the answer is AA": "AA",
            "The answer is I": "I",
            "I": "I",
            "I am lost": None,
            "c28": "AC",
        },
    ),
    "small letters": (
        ("a", "b", "c"),
        ("x1", "x2", "x3"),
        {"b": "b", "B": "b", "The best answer is b.": "b", "(c)": "c", "a": "a", "The best answer is a.": "a"},
    ),
    "cells": (
        tuple("ABCD"),
        ("The mitochondria", "The nucleus", "The ribosome", "The Golgi apparatus"),
        {
            "The powerhouse of the cell is the mitochondria. The best answer is A.": "A",
            "Proteins are made by ribosomes, which read mRNA. The nucleus stores DNA, and the mitochondria make ATP.\n\nThe best answer is C.": "C",
            "The ribosome": "C",
            "the ribosome.": "C",
            "Ribosome": "C",
            "The best answer is C. The ribosome is where proteins are made. The nucleus (B) stores DNA.": "C",
            "C. The ribosome\n\nExplanation: The nucleus stores DNA while the mitochondria produce energy.": "C",
            "The correct answer is **C. The ribosome**.\n\nHere's why:\n\n* **A. The mitochondria** produce ATP.\n* **B. The nucleus** stores DNA.\n* **D. The Golgi apparatus** packages proteins.": "C",
            "Let's evaluate each option:\n\n- **A. The mitochondria**: responsible for energy.\n- **B. The nucleus**: contains DNA.\n- **C. The ribosome**: synthesizes proteins.\n- **D. The Golgi apparatus**: packages proteins.\n\nSo the best answer is C.": "C",
            "Let's evaluate each option:\n\nA. The mitochondria - incorrect, energy.\nB. The nucleus - incorrect, DNA.\nC. The ribosome - correct.\nD. The Golgi apparatus - incorrect.": "C",
            "1. The mitochondria make ATP.\n2. The nucleus stores DNA.\n3. Hence, the best answer is C.": "C",
            "It is the ribosome that makes proteins.": "C",
            "The nucleus does not make proteins; the ribosome does.": "C",
            "The best answer is The ribosome": "C",
            "The best answer is the ribosome (C), not the nucleus (B).": "C",
            "I think it's either the nucleus or the ribosome.": None,
            "Both the nucleus and the ribosome.": None,
            "The best answer is B, or possibly C.": None,
            "The answer is C\n\nThe answer is C\n\nThe answer is C": "C",
        },
    ),
    "powers": (
        tuple("ABCD"),
        ("4", "8", "16", "32"),
        {
            "2^3 = 8, so the best answer is B.": "B",
            "2*2*2 = 8": "B",
            "The answer is 8.": "B",
            "8": "B",
            "$2^3 = 8$. The best answer is B.": "B",
            "There are 4 cups and 2 per cup: 4 * 2 = 8. The best answer is B": "B",
            "4 + 4 = 8. Therefore B.": "B",
            "I get 16/2 = 8, which is option B": "B",
            "The answer is 8 (B).": "B",
            "8 or 16": None,
            "**B) 8**": "B",
            "The value is 8.": "B",
            "x = 8": "B",
        },
    ),
    "pairs of truths": (
        tuple("ABCD"),
        ("True, True", "False, False", "True, False", "False, True"),
        {
            "True, False": "C",
            "Statement 1 is true, statement 2 is false. The best answer is C.": "C",
            "The best answer is C) True, False.": "C",
            "False, True.": "D",
            "Statement 1 | True. Statement 2 | False. So C": "C",
        },
    ),
    "Roman statements": (
        tuple("ABCD"),
        ("I only", "II only", "I and II", "Neither I nor II"),
        {
            "I and II": "C",
            "The best answer is C.": "C",
            "Both I and II are correct, so the best answer is C.": "C",
            "Neither I nor II": "D",
            "D) Neither I nor II": "D",
            "I only": "A",
            "Statement I is wrong. The best answer is B.": "B",
            "I think the best answer is B": "B",
        },
    ),
    "directions": (
        tuple("ABCD"),
        ("increases", "decreases", "remains the same", "cannot be determined"),
        {
            "It increases.": "A",
            "The pressure decreases.": "B",
            "The best answer is D: cannot be determined.": "D",
            "Cannot be determined": "D",
            "The pressure remains the same.": "C",
            "As volume increases, pressure decreases. The best answer is B.": "B",
            "As volume increases, pressure decreases.": None,
        },
    ),
    "capitals": (
        tuple("ABCD"),
        ("Paris", "London", "Berlin", "Madrid"),
        {
            "The capital of France is Paris.": "A",
            "Paris is the capital of France, London is that of England.": None,
            "The best answer is A because Paris is the capital, whereas B, C, and D are capitals of other countries.": "A",
            "A. B, C and D are capitals of other countries.": "A",
            "The capital of France is Paris, so the best answer is A. Paris.": "A",
            "A) Paris is correct.": "A",
            "Sure! The capital of France is Paris, so the answer is A. Let me know if you need help with B, C, or D!": "A",
            "The best answer is A.\n\nI hope this helps!": "A",
            "The best answer is A.\n\nQuestion 2": "A",
            "Of these, only Paris (A) is in France. The best answer is: A": "A",
            "A (Paris)": "A",
            "(A) Paris": "A",
            "[A] Paris": "A",
            "A – Paris": "A",
            "A | Paris": "A",
            "A> Paris": "A",
            "\nA": "A",
            "A\n": "A",
            "\n\nAnswer: A\n\n": "A",
            "The best answer is A.<|eot_id|>": "A",
            'The best answer is "A".': "A",
            "**The best answer is: A. Paris**": "A",
            "The best answer is **A**: Paris.": "A",
            "*The best answer is A*": "A",
            "> The best answer is A": "A",
            "- A": "A",
            "Best: A": "A",
            "The best choice: A": "A",
            "I'll go with A.": "A",
            "I'd choose A over B.": "A",
            "I'd choose A, not B.": "A",
            "Final: A": "A",
            "Choice A": "A",
            "A!": "A",
            "It's A": "A",
            "its A": "A",
            "thats A": "A",
            "The answer's A": "A",
            "ans A": "A",
            "Answer is: option A - Paris": "A",
            "The letter is A.": "A",
            "The letter A": "A",
        },
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_labels_and_choices(case: str) -> None:
    labels, texts, verdicts = OTHERS[case]
    numbers = {answer: stated_choice(answer, labels, texts) for answer in verdicts}
    assert {answer: labels[n] if n is not None else None for answer, n in numbers.items()} == verdicts


def test_answers_labelled_by_a_reader() -> None:
    """Each line of the file: the texts of the choices, an answer, and the label that a reader finds in it, or null."""
    lines = (Path(__file__).parent / "chat_answers.jsonl").read_text().splitlines()
    wrong = []
    for line in lines:
        case = json.loads(line)
        number = stated_choice(case["answer"], "ABCD", case["texts"])
        label = "ABCD"[number] if number is not None else None
        wrong += [(case["answer"], case["label"], label)] if label != case["label"] else []
    assert len(lines) > 300
    assert wrong == []


@pytest.mark.parametrize("text", ["the answer is ", "(A, ", "red or ", "not a ", "a", "\n", "A ", "option "])
def test_long_answers_take_bounded_time(text: str) -> None:
    """Only the beginning and the end are looked at; without that, some of these took half a minute."""
    assert stated_choice(text * 4000 + "\nThe best answer is C.", "ABCD", COLORS) == 2


def test_the_filter_gives_the_text_where_choices_have_no_labels() -> None:
    step = FILTERS["choice"](choices="options", labels=None)
    answers = ["The best answer is Blue.", "red", "red or blue", "purple", None]
    assert step(answers, {"options": ["red", "blue"]}) == ["blue", "red", "[invalid]", "[invalid]", "[invalid]"]


def test_the_filter_without_choices_looks_for_letters_and_else_keeps_the_answer() -> None:
    answers = [
        "The best answer is C.",
        " C ",
        "C) blue",
        "(C)",
        "The best answer is **blue**.",
        "A dog",
        "C. elegans",
        "A or B",
    ]
    expected = ["C", "C", "C", "C", "blue", "A dog", "C. elegans", "A or B"]
    assert FILTERS["choice"]()(answers, {}) == expected


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labels must be letters, numbers, a list or null, got 'roman'"):
        generate(tmp_path, ["a"], ["a"], "filter_list: [{name: f, filter: [{function: choice, labels: roman}]}]\n")


def test_choices_of_a_missing_column_are_refused_before_any_request(tmp_path: Path) -> None:
    yaml = "filter_list: [{name: f, filter: [{function: choice, choices: glod}, {function: take_first}]}]\n"
    with pytest.raises(
        ConfigError, match=r"t\.yaml:\d+:\d+: .*'glod', which the documents do not have — did you mean 'gold'"
    ):
        generate(tmp_path, ["a"], ["a"], yaml)


def test_the_filter_in_a_task_of_ones_own(tmp_path: Path) -> None:
    steps = '[{function: choice, choices: \'{{["red", "blue"]}}\', labels: numbers}, {function: take_first}]'
    answers = ["The best answer is 2) blue.", "red", "1 or 2"]
    results = generate(tmp_path, answers, ["2", "1", "1"], f"filter_list: [{{name: none, filter: {steps}}}]\n")
    assert filtered(results) == ["2", "1", "[invalid]"]


ROWS = [{"question": f"Q{n}?", "choices": list(COLORS), "answer": n} for n in range(4)]
TASK = "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: {choices}\ndoc_to_target: answer\n"


def chat(folder: Path, said: str, task: str = "t@generate", **options: Any) -> dict[str, Any]:
    """The results of a chat server that gives one answer to every question."""

    def answer(arrived: Arrived) -> Any:
        asked = json.loads(arrived.body or b"{}")
        bodies.append(asked)
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return {"choices": [choice], "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}

    bodies: list[Any] = []
    with loopback(answer) as (url, _):
        results: dict[str, Any] = simple_evaluate(
            model="openai-chat", model_args=f"model=m,base_url={url}/v1", tasks=task, include_path=str(folder),
            include_defaults=False, apply_chat_template=True, **options,
        )  # fmt: skip
    results["bodies"] = bodies
    return results


SAID = {
    "The best answer is B.": 0.25,
    "Let me think.\n\nFire is red, grass is green.\n\n**The best answer is B) blue.**": 0.25,
    "<think>A? No.</think>The best answer is B.": 0.25,
    "A or B": 0.0,
    "": 0.0,
}


@pytest.mark.parametrize("said", SAID)
def test_an_obedient_chat_model_is_right_where_it_is_right(said: str, tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, TASK.format(choices="choices"))
    results = chat(tmp_path, said)
    assert results["results"]["t@generate"]["exact_match,none"] == SAID[said]
    [body, *_] = [each for each in results["bodies"] if "Q0?" in json.dumps(each)]
    assert body.get("max_tokens", body.get("max_completion_tokens")) >= 256
    assert not any(stop in said for stop in body["stop"])


@pytest.mark.parametrize(
    "choices",
    ["choices", '["red", "blue", "green", "yellow"]', '"{{choices}}"', '"{{choices | list}}"', "!function own.choices"],
)
def test_choices_are_found_however_the_task_writes_them(choices: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def choices(doc):\n    return doc['choices']\n")
    write_task(tmp_path, ROWS, TASK.format(choices=choices))
    model = Scripted(generate=lambda prompt, params, repeat: "I think it is blue.")
    results = run(tmp_path, model, "t@generate")
    assert results["results"]["t@generate"]["exact_match,none"] == 0.25


def test_lm_eval_compares_the_first_line_as_a_whole(tmp_path: Path) -> None:
    write_task(tmp_path, ROWS, TASK.format(choices="choices"))
    asked: list[dict[str, object]] = []

    def answer(prompt: str, params: dict[str, object], repeat: int) -> str:
        asked.append(params)
        return "B." if "Q1?" in prompt else "The best answer is C."

    results = run(tmp_path, Scripted(generate=answer), "t@generate", compat="lm-eval")
    assert results["results"]["t@generate"]["exact_match,none"] == 0.25
    assert (asked[0]["until"], asked[0]["max_gen_toks"]) == (["\n"], 32)
    formats = TaskManager(include_path=str(tmp_path), include_defaults=False, compat="lm-eval").formats
    assert formats["cot"].generation_kwargs == TaskManager(include_defaults=False).formats["cot"].generation_kwargs


def test_the_scorer_takes_chat_answers_where_no_format_lists_choices(tmp_path: Path) -> None:
    answers = ["The best answer is B.", "(B)", "A or B", "Answer: yes", "Paris."]
    results = generate(tmp_path, answers, ["B", "B", "B", "yes", "paris"], "scorer: first_token\n")
    assert filtered(results) == ["B", "B", "A or B", "yes", "Paris."]
    assert results["results"]["t"]["exact_match,none"] == 0.8


def test_under_compat_the_scorer_compares_the_whole_answer(tmp_path: Path) -> None:
    answers = [" B.", "The best answer is B."]
    results = generate(tmp_path, answers, ["B", "B"], "scorer: first_token\n", compat="lm-eval")
    assert filtered(results) == ["B.", "The best answer is B."]
    assert results["results"]["t"]["exact_match,none"] == 0.5


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("So.\nThe final answer is blue.", 1),
        ("**The final answer is: blue**", 1),
        ("**Final answer:** blue", 1),
        ("The final answer is $\\boxed{\\text{blue}}$.", 1),
        ("The final answer is \\(blue\\)", 1),
        ("The final answer is\n\n**blue**", 1),
        ("The final answer is red. No: the final answer is blue", 1),
        ("blue", 0),
    ],
)
def test_the_final_answer_of_a_chain_of_thought(said: str, right: int, tmp_path: Path) -> None:
    write_task(tmp_path, ROWS[1:2], TASK.format(choices="choices"))
    results = run(tmp_path, Scripted(generate=lambda prompt, params, repeat: said), "t@cot")
    assert results["results"]["t@cot"]["exact_match,final-answer"] == right


WORDS = st.lists(
    st.sampled_from([*"ABCDI", *COLORS, "not", "or", "and", "is", "answer", "(", ")", ".", ",", "\n", "the", "so", ":", "?", "**", "\\boxed{", "}", "because", "also"]),
    max_size=12,
).map(" ".join)  # fmt: skip
ANYTHING = st.one_of(st.text(max_size=60), WORDS)


@settings(max_examples=300, deadline=None)
@given(ANYTHING, st.lists(st.text(max_size=8), max_size=5), st.lists(st.text(max_size=3), max_size=5))
def test_any_answer_states_a_choice_or_none(answer: str, texts: list[str], labels: list[str]) -> None:
    number = stated_choice(answer, labels, texts)
    assert number is None or 0 <= number < max(len(labels), len(texts))


@settings(max_examples=300, deadline=None)
@given(ANYTHING, st.sampled_from("ABCD"))
def test_whatever_comes_before_it_the_last_line_counts(thought: str, label: str) -> None:
    for last in (f"The best answer is {label}.", f"**The best answer is {label}) {COLORS['ABCD'.index(label)]}**"):
        number = stated_choice(f"{thought}\n\n{last}", "ABCD", COLORS)
        assert number is not None
        assert "ABCD"[number] == label


@settings(max_examples=300, deadline=None)
@given(ANYTHING, st.permutations("ABCD"))
def test_whatever_comes_before_it_a_hedge_earns_nothing(thought: str, labels: list[str]) -> None:
    assert stated_choice(f"{thought}\n\nThe best answer is {labels[0]} or {labels[1]}.", "ABCD", COLORS) is None


@settings(max_examples=200, deadline=None)
@given(WORDS)
def test_the_order_of_choices_does_not_matter(answer: str) -> None:
    """Choices by their texts alone: what is stated has the same text, however they are listed."""
    forward, backward = stated_choice(answer, (), COLORS), stated_choice(answer, (), COLORS[::-1])
    assert (forward is None) == (backward is None)
    assert forward is None or backward is None or COLORS[forward] == COLORS[::-1][backward]
