"""The rows of the bundled `first_steps` tasks, made from a seed: original, licence-free, as many as one wants.

Each task is a function of a random generator that gives rows without end; `question` and `answer` of a row are what the
task files ask and expect, so that a model can be trained on the same words.
"""

import random
from collections.abc import Callable, Iterator

Row = dict[str, object]
Rng = random.Random

_NOUNS = """
apple bridge candle dog engine flower garden house island jacket kettle lamp mirror needle orange pencil queen
river spoon table uncle village window yard basket castle doctor egg farm glove hammer jar king ladder
mountain nest oven pocket rabbit shoe tower umbrella violin wheel bottle carpet drum feather ghost harbour
"""
_VERBS = """
ask bring carry dance eat find give hear invite jump keep laugh melt notice open paint question run sing teach
unite visit walk yell borrow climb deliver escape forget grow hide improve join kick listen marry obey perform
receive sleep throw understand vanish whisper breathe collect dig explain follow gather
"""
_ADJECTIVES = """
angry brave clean deep early fast gentle happy idle jolly kind late merry narrow old polite quiet rich safe
tall ugly vast warm young bitter cheap dry empty fresh greedy heavy icy jealous keen loud modern nervous odd
proud rough silent tiny useful vivid weak brief calm dull eager fierce
"""
_OPPOSITES = """
hot/cold big/small tall/short old/new early/late fast/slow full/empty hard/soft heavy/light high/low
long/brief loud/quiet open/closed rich/poor right/wrong rough/smooth safe/dangerous sharp/blunt strong/weak
sweet/sour thick/thin warm/cool wet/dry wide/narrow young/aged happy/sad clean/dirty deep/shallow bright/dark
brave/afraid cheap/costly first/last friend/enemy front/back give/take good/bad inside/outside lost/found
love/hate many/few near/far north/south past/future push/pull rise/fall start/finish true/false up/down
win/lose
"""
_FACTS = """
The capital of France is: Paris; The capital of Italy is: Rome; The capital of Spain is: Madrid; The capital of Japan is: Tokyo
The capital of Egypt is: Cairo; The capital of Greece is: Athens; The capital of Kenya is: Nairobi; The capital of Peru is: Lima
The capital of Norway is: Oslo; The capital of Cuba is: Havana; A baby dog is called a: puppy; A baby cat is called a: kitten
A baby cow is called a: calf; A baby sheep is called a: lamb; A baby horse is called a: foal; A baby frog is called a: tadpole
A baby bear is called a: cub; A baby duck is called a: duckling; A baby goat is called a: kid; A baby hen is called a: chick
Bees make: honey; Spiders make: webs; Cows give: milk; Hens lay: eggs
Bakers bake: bread; Tailors sew: clothes; Snow is: white; Grass is: green
Coal is: black; Blood is: red; The sky is: blue; Lemons are: yellow
A triangle has three: sides; A spider has eight: legs; A week has seven: days; A year has twelve: months
A hand has five: fingers; We see with our: eyes; We hear with our: ears; We smell with our: nose
We walk on our: feet; We think with our: brain; Fish live in: water; Birds live in: nests
Bears live in: caves; Ants live in: hills; The sun rises in the: east; Ice is frozen: water
Wine is made from: grapes; Paper is made from: wood; Glass is made from: sand
"""
_IRREGULAR = """
mouse/mice man/men woman/women child/children foot/feet tooth/teeth goose/geese ox/oxen person/people louse/lice
sheep/sheep deer/deer fish/fish die/dice leaf/leaves knife/knives
"""
_NAMES = """
Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karla Leo Mia Noah Olga Paul Rosa Sam Tina Viktor
"""
_COLOURS = """
red blue green yellow black white brown grey purple pink
"""
_THINGS = """
ball cup hat book kite coat bag chair boat scarf
"""
_PLACES = """
garden kitchen school forest market station beach library
"""

NOUNS, VERBS, ADJECTIVES = _NOUNS.split(), _VERBS.split(), _ADJECTIVES.split()
NAMES, COLOURS, THINGS, PLACES = _NAMES.split(), _COLOURS.split(), _THINGS.split(), _PLACES.split()
OPPOSITES = [tuple(pair.split("/")) for pair in _OPPOSITES.split()]
IRREGULAR = dict(pair.split("/") for pair in _IRREGULAR.split())
FACTS = [tuple(fact.strip().split(": ")) for line in _FACTS.strip().splitlines() for fact in line.split(";")]


def sums(rng: Rng) -> Iterator[Row]:
    """Additions of numbers of up to four digits."""
    while True:
        a, b = _number(rng, 4), _number(rng, 4)
        yield {"a": a, "b": b, "question": f"{a} + {b} =", "answer": str(a + b)}


def differences(rng: Rng) -> Iterator[Row]:
    """Subtractions that stay above zero."""
    while True:
        b, a = sorted([_number(rng, 4), _number(rng, 4) + 1])
        yield {"a": a, "b": b, "question": f"{a} - {b} =", "answer": str(a - b)}


def larger(rng: Rng, most: int = 7) -> Iterator[Row]:
    """The larger of two numbers."""
    while True:
        a = _number(rng, most)
        digits = list(str(a))
        rng.shuffle(digits)
        b = int("".join(digits)) if rng.random() < 0.5 else _number(rng, most)
        if a == b:
            continue
        yield _choice(f"Which is larger, {a} or {b}?", [str(a), str(b)], str(max(a, b)))


def sequences(rng: Rng, most: int = 40) -> Iterator[Row]:
    """What comes next in a row of numbers."""
    while True:
        start, step = rng.randrange(1, most), rng.choice([1, 2, 3, 4, 5, 10])
        shown = [start + step * n for n in range(4)]
        following = shown[-1] + step
        wrong = rng.sample(
            [n for n in range(following - 6, following + 7) if n not in (following, *shown) and n > 0], 3
        )
        yield _choice("Next: " + ", ".join(map(str, shown)) + ",", _shuffled(rng, [following, *wrong]), str(following))


def reversing(rng: Rng, most: int = 20) -> Iterator[Row]:
    """Letters read backwards."""
    while True:
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(6, most + 1)))
        yield {"question": f"reverse: {' '.join(word)} ->", "answer": " ".join(reversed(word))}


def sorting(rng: Rng, most: int = 18) -> Iterator[Row]:
    """Letters put in order."""
    while True:
        letters = rng.sample("abcdefghijklmnopqrstuvwxyz", rng.randrange(6, most + 1))
        yield {"question": f"sort: {' '.join(letters)} ->", "answer": " ".join(sorted(letters))}


def counting(rng: Rng, most: int = 40) -> Iterator[Row]:
    """How often a letter occurs in a row of letters."""
    while True:
        letters = rng.choices("abc", k=rng.randrange(10, most + 1))
        yield {"question": f"count a: {' '.join(letters)} ->", "answer": str(letters.count("a"))}


def word_classes(rng: Rng) -> Iterator[Row]:
    """Words that are a noun, a verb or an adjective."""
    classes = {"noun": NOUNS, "verb": VERBS, "adjective": ADJECTIVES}
    while True:
        name = rng.choice(list(classes))
        yield _choice(f"The word {rng.choice(classes[name])} is a", list(classes), name)


def opposites(rng: Rng) -> Iterator[Row]:
    """The opposite of a word, among four."""
    words = [word for pair in OPPOSITES for word in pair]
    while True:
        pair = rng.choice(OPPOSITES)
        word, right = rng.sample(pair, 2)
        wrong = rng.sample([each for each in words if each not in pair], 3)
        yield _choice(f"The opposite of {word} is", _shuffled(rng, [right, *wrong]), right)


def plurals(rng: Rng) -> Iterator[Row]:
    """More than one of a thing: of words that do not exist by the rules, and of some irregular ones that do."""
    while True:
        noun = rng.choice(list(IRREGULAR)) if rng.random() < 0.25 else _invented(rng)
        yield {"question": f"One {noun}, two", "answer": IRREGULAR.get(noun) or _plural(noun)}


def facts(rng: Rng) -> Iterator[Row]:
    """Things most people know, with three other answers."""
    while True:
        said, right = rng.choice(FACTS)
        wrong = rng.sample([other for _, other in FACTS if other != right], 3)
        yield _choice(said, _shuffled(rng, [right, *wrong]), right)


def cloze(rng: Rng) -> Iterator[Row]:
    """The last word of a fact."""
    while True:
        said, right = rng.choice(FACTS)
        yield {"question": said, "answer": right}


def reading(rng: Rng) -> Iterator[Row]:
    """Who has what: the answer is in the text."""
    while True:
        people, things, colours = rng.sample(NAMES, 6), rng.sample(THINGS, 6), rng.choices(COLOURS, k=6)
        have = [f"a {colour} {thing}" for colour, thing in zip(colours, things, strict=True)]
        text = " ".join(f"{name} has {what}." for name, what in zip(people, have, strict=True))
        number = rng.randrange(6)
        yield {**_choice(f"What does {people[number]} have?", have, have[number]), "passage": text}


def finding(rng: Rng) -> Iterator[Row]:
    """Where a person is, in one word."""
    while True:
        people = rng.sample(NAMES, 3)
        where = {name: rng.choice(PLACES) for name in people}
        text = [f"{name} is in the {place}." for name, place in where.items()]
        for _ in range(rng.randrange(1, 5)):
            name = rng.choice(people)
            where[name] = rng.choice(PLACES)
            text.append(f"{name} goes to the {where[name]}.")
        asked = rng.choice(people)
        yield {"passage": " ".join(text), "question": f"Where is {asked}?", "answer": where[asked]}


def stories(rng: Rng) -> Iterator[Row]:
    """Short texts, to be read as a whole."""
    while True:
        name, other = rng.sample(NAMES, 2)
        thing, place, colour = rng.choice(THINGS), rng.choice(PLACES), rng.choice(COLOURS)
        yield {
            "text": f"{name} went to the {place}. There {name} found a {colour} {thing}. "
            f"{other} came to the {place}, too. {name} gave the {thing} to {other}. {other} was {rng.choice(['happy', 'glad'])}."
        }


TASKS: dict[str, Callable[[Rng], Iterator[Row]]] = {
    "sums": sums, "differences": differences, "larger": larger, "sequences": sequences, "reversing": reversing,
    "sorting": sorting, "counting": counting, "word_classes": word_classes, "opposites": opposites, "plurals": plurals,
    "facts": facts, "cloze": cloze, "reading": reading, "finding": finding, "stories": stories,
}  # fmt: skip


KNOWLEDGE = ("facts", "cloze", "word_classes", "opposites", "plurals")
"""Tasks that cannot be answered without training: half of what their tests ask is in their training split as well."""

SIZES = {"facts": (48, 30), "cloze": (48, 30)}
"""Rows of the test and of the training split, where there are not 60 and 30."""


HARDER = {"reversing": 36, "sorting": 26, "counting": 80, "larger": 9, "sequences": 160}
"""Tasks whose tests go beyond their training splits, with longer rows and larger numbers: does it carry over?"""


def test_rows(name: str) -> list[Row]:
    """The test split of a task."""
    rng = random.Random(f"first_steps {name} test")
    built = TASKS[name](rng, HARDER[name]) if name in HARDER else TASKS[name](rng)  # type: ignore[call-arg]
    return different(built, SIZES.get(name, (60, 30))[0])


def withheld(name: str) -> frozenset[str]:
    """What of the test must not be trained on."""
    test = [identity(row) for row in test_rows(name)]
    return frozenset(test[::2] if name in KNOWLEDGE else test)


def rows(name: str, rng: Rng, number: int, without: frozenset[str] = frozenset()) -> list[Row]:
    """So many different rows of a task; none whose `identity` is in `without`."""
    return different(TASKS[name](rng), number, without)


def different(built: Iterator[Row], number: int, without: frozenset[str] = frozenset()) -> list[Row]:
    """The first different ones of some rows; fewer where there are not so many."""
    result: dict[str, Row] = {}
    for _ in range(number * 20):
        row = next(built)
        key = identity(row)
        if key not in without:
            result.setdefault(key, row)
        if len(result) == number:
            break
    return list(result.values())


def identity(row: Row) -> str:
    """What makes a row another row: what is asked, not the order of the choices."""
    return f"{row.get('passage', '')} {row.get('question', row.get('text'))}"


def _choice(question: str, choices: list[str], right: str) -> Row:
    return {"question": question, "choices": choices, "answer": choices.index(right)}


def _shuffled(rng: Rng, values: list[object]) -> list[str]:
    return [str(value) for value in rng.sample(values, len(values))]


def _number(rng: Rng, digits: int) -> int:
    """A number of at most so many digits, long ones no likelier than short ones."""
    return rng.randrange(1, 10 ** rng.randrange(1, digits + 1))


def _invented(rng: Rng) -> str:
    """A word that sounds like one."""
    syllables = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randrange(1, 3))]
    return "".join(syllables) + rng.choice(
        ["b", "d", "g", "k", "l", "m", "n", "p", "r", "t", "y", "s", "x", "ch", "sh"]
    )


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
