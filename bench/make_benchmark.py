#!/usr/bin/env python3
"""Write deterministic synthetic benchmarks as lm-eval style YAML + JSONL.

usage: make_benchmark.py OUTDIR [--big | --many N]      -> OUTDIR/tasks/*.yaml, OUTDIR/data/*.jsonl

synth_mmlu        57 tasks x 250 documents in 4 category groups under one top group, 5-shot (14,250 docs, 57,000 requests)
synth_mmlu5       the first five of those tasks
synth_hellaswag   500 documents, 10-shot, four continuations of 15-35 words, acc and acc_norm
synth_gsm8k       1,319 documents, 8-shot, generation, two filters
synth_gsm8k_r8    the same with repeats 8 and majority vote
synth_lambada     500 documents, loglikelihood, perplexity and acc
synth_wiki        60 pages, loglikelihood_rolling, word/byte perplexity and bits per byte
synth_wino        400 documents, multiple inputs (the choice is in the context)
synth_translate   300 documents, generation, bleu / chrf / ter
synth_big         one task of 142,500 documents (with --big)
synth_many        N tasks of two documents, and nothing else (with --many N)
"""

import itertools
import json
import random
import sys
from pathlib import Path

SYLLABLES = [
    "ba",
    "be",
    "bi",
    "bo",
    "bu",
    "da",
    "de",
    "di",
    "do",
    "du",
    "fa",
    "fe",
    "fi",
    "fo",
    "ga",
    "ge",
    "gi",
    "go",
    "ka",
    "ke",
    "ki",
    "ko",
    "la",
    "le",
    "li",
    "lo",
    "lu",
    "ma",
    "me",
    "mi",
    "mo",
    "na",
    "ne",
    "ni",
    "no",
    "pa",
    "pe",
    "pi",
    "po",
    "ra",
    "re",
    "ri",
    "ro",
    "sa",
    "se",
    "si",
    "so",
    "ta",
    "te",
    "ti",
    "to",
    "tra",
    "stre",
    "ion",
    "ing",
    "ed",
    "er",
    "ly",
    "ment",
]
_rng = random.Random(1234)
WORDS = ["".join(_rng.choice(SYLLABLES) for _ in range(_rng.randint(1, 4))) for _ in range(4000)]
CUMULATIVE = list(itertools.accumulate(1 / (i + 10) for i in range(4000)))


def words(rng, n):
    return " ".join(rng.choices(WORDS, cum_weights=CUMULATIVE, k=n))


def choice_row(rng):
    return {
        "question": words(rng, 60).capitalize() + "?",
        "choices": [words(rng, 5) for _ in range(4)],
        "answer": rng.randrange(4),
    }


def sum_row(rng):
    a, b, c = rng.randint(2, 90), rng.randint(2, 90), rng.randint(2, 12)
    return {
        "question": f"{words(rng, 45).capitalize()} {a} and {b} times {c}?",
        "answer": f"{words(rng, 35)} <<{a}+{b}={a + b}>>{a + b}. {words(rng, 25)} <<{a + b}*{c}={(a + b) * c}>>{(a + b) * c}.\n#### {(a + b) * c}",
    }


def ending_row(rng):
    return {
        "ctx": words(rng, 80).capitalize() + ".",
        "endings": [words(rng, rng.randint(15, 35)) for _ in range(4)],
        "label": rng.randrange(4),
    }


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def header(name, data, output_type, splits):
    files = "".join(
        f"    {split}: {data}/{name if shared is None else shared}_{split}.jsonl\n" for split, shared in splits.items()
    )
    return f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n{files}output_type: {output_type}\ntest_split: test\n"


def metrics(*names):
    return "metric_list:\n" + "".join(f"  - metric: {n}\n" for n in names) + "metadata:\n  version: 1.0\n"


MMLU = (
    'description: "The following are multiple choice questions (with answers) about {subject}.\\n\\n"\n'
    "fewshot_split: dev\nfewshot_config:\n  sampler: first_n\nnum_fewshot: 5\n"
    'doc_to_text: "{{{{question.strip()}}}}\\nA. {{{{choices[0]}}}}\\nB. {{{{choices[1]}}}}\\nC. {{{{choices[2]}}}}\\nD. {{{{choices[3]}}}}\\nAnswer:"\n'
    'doc_to_choice: ["A", "B", "C", "D"]\ndoc_to_target: answer\n'
)
MEAN = "aggregate_metric_list:\n  - metric: acc\n    aggregation: mean\n    weight_by_size: true\nmetadata:\n  version: 1\n"
STRICT = '      - function: regex\n        regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"\n'
FLEXIBLE = '      - function: regex\n        group_select: -1\n        regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"\n'
FIRST = "      - function: take_first\n"
VOTE = "      - function: majority_vote\n" + FIRST


def pipeline(name, *steps):
    return f"  - name: {name}\n    filter:\n" + "".join(steps)


def gsm(name, data, filters, repeats):
    return (
        header(name, data, "generate_until", {"train": "synth_gsm8k", "test": "synth_gsm8k"})
        + "training_split: train\nfewshot_split: train\nfewshot_config:\n  sampler: first_n\nnum_fewshot: 8\n"
        'doc_to_text: "Question: {{question}}\\nAnswer:"\ndoc_to_target: "{{answer}}"\n'
        f'generation_kwargs:\n  until: ["Question:", "</s>", "<|im_end|>"]\n  do_sample: {str(repeats > 1).lower()}\n  temperature: {0.7 if repeats > 1 else 0.0}\n'
        f"repeats: {repeats}\nfilter_list:\n{filters}"
        "metric_list:\n  - metric: exact_match\n    aggregation: mean\n    higher_is_better: true\n    ignore_case: true\n    ignore_punctuation: false\n"
        '    regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]\nmetadata:\n  version: 3.0\n'
    )


def main():
    out = Path(sys.argv[1]).resolve()
    tasks, data = out / "tasks", out / "data"
    tasks.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)

    def task(name, text):
        (tasks / f"{name}.yaml").write_text(text, encoding="utf-8")

    def group(name, members):
        task(f"_{name}", f"group: {name}\ntask:\n" + "".join(f"  - {m}\n" for m in members) + MEAN)

    if "--many" in sys.argv:
        rng = random.Random(6)
        names = [f"synth_many_{number:05d}" for number in range(int(sys.argv[sys.argv.index("--many") + 1]))]
        for name in names:
            write_rows(data / f"{name}_test.jsonl", [choice_row(rng) for _ in range(2)])
            choice = 'doc_to_text: "{{question}}\\nAnswer:"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: answer\n'
            task(name, header(name, data, "multiple_choice", {"test": None}) + choice + metrics("acc"))
        group("synth_many", names)
        return

    topics = ["anatomy", "law", "history", "physics", "logic", "biology", "ethics"]
    subjects = [f"s{i:02d}_{topics[i % 7]}" for i in range(57)]
    categories = {c: [] for c in ("stem", "humanities", "social", "other")}
    for i, subject in enumerate(subjects):
        rng, name = random.Random(1000 + i), f"synth_mmlu_{subject}"
        write_rows(data / f"{name}_dev.jsonl", [choice_row(rng) for _ in range(5)])
        write_rows(data / f"{name}_test.jsonl", [choice_row(rng) for _ in range(250)])
        task(
            name,
            header(name, data, "multiple_choice", {"dev": None, "test": None})
            + MMLU.format(subject=subject)
            + metrics("acc"),
        )
        categories[list(categories)[i % 4]].append(name)
    for category, members in categories.items():
        group(f"synth_mmlu_{category}", members)
    group("synth_mmlu", [f"synth_mmlu_{c}" for c in categories])
    group("synth_mmlu5", [f"synth_mmlu_{s}" for s in subjects[:5]])

    rng = random.Random(31)
    write_rows(data / "synth_hellaswag_train.jsonl", [ending_row(rng) for _ in range(200)])
    write_rows(data / "synth_hellaswag_test.jsonl", [ending_row(rng) for _ in range(500)])
    task(
        "synth_hellaswag",
        header("synth_hellaswag", data, "multiple_choice", {"train": None, "test": None})
        + 'training_split: train\nfewshot_split: train\nnum_fewshot: 10\ndoc_to_text: "{{ctx}}"\ndoc_to_choice: "{{endings}}"\ndoc_to_target: label\n'
        + metrics("acc", "acc_norm"),
    )

    rng = random.Random(77)
    write_rows(data / "synth_gsm8k_train.jsonl", [sum_row(rng) for _ in range(8)])
    write_rows(data / "synth_gsm8k_test.jsonl", [sum_row(rng) for _ in range(1319)])
    task(
        "synth_gsm8k",
        gsm(
            "synth_gsm8k",
            data,
            pipeline("strict-match", STRICT, FIRST) + pipeline("flexible-extract", FLEXIBLE, FIRST),
            1,
        ),
    )
    task(
        "synth_gsm8k_r8",
        gsm(
            "synth_gsm8k_r8",
            data,
            pipeline("strict-first", STRICT, FIRST)
            + pipeline("flexible-first", FLEXIBLE, FIRST)
            + pipeline("strict-maj", STRICT, VOTE)
            + pipeline("flexible-maj", FLEXIBLE, VOTE),
            8,
        ),
    )

    rng = random.Random(41)
    write_rows(data / "synth_lambada_test.jsonl", [{"text": words(rng, 70)} for _ in range(500)])
    task(
        "synth_lambada",
        header("synth_lambada", data, "loglikelihood", {"test": None})
        + "doc_to_text: \"{{text.split(' ')[:-1]|join(' ')}}\"\ndoc_to_target: \"{{' '+text.split(' ')[-1]}}\"\n"
        + metrics("perplexity", "acc"),
    )
    write_rows(
        data / "synth_wiki_test.jsonl",
        [{"page": " = " + words(rng, 3) + " = \n " + words(rng, 900)} for _ in range(60)],
    )
    task(
        "synth_wiki",
        header("synth_wiki", data, "loglikelihood_rolling", {"test": None})
        + 'doc_to_text: ""\ndoc_to_target: page\n'
        + metrics("word_perplexity", "byte_perplexity", "bits_per_byte"),
    )
    write_rows(
        data / "synth_wino_test.jsonl",
        [
            {
                "sentence": words(rng, 9) + " _ " + words(rng, 8),
                "option1": words(rng, 1),
                "option2": words(rng, 1),
                "answer": str(rng.randint(1, 2)),
            }
            for _ in range(400)
        ],
    )
    task(
        "synth_wino",
        header("synth_wino", data, "multiple_choice", {"test": None})
        + "doc_to_text: \"{{ {'1': 0, '2': 1}[answer] }}\"\ndoc_to_target: \"{{sentence.split('_')[1].strip()}}\"\n"
        "doc_to_choice: \"{{[sentence.split('_')[0] + option1, sentence.split('_')[0] + option2]}}\"\n"
        + metrics("acc"),
    )
    write_rows(
        data / "synth_translate_test.jsonl", [{"src": words(rng, 18), "ref": words(rng, 18)} for _ in range(300)]
    )
    task(
        "synth_translate",
        header("synth_translate", data, "generate_until", {"test": None})
        + 'doc_to_text: "{{src}}\\nTranslation:"\ndoc_to_target: " {{ref}}"\ngeneration_kwargs:\n  until: ["\\n"]\n  do_sample: false\n  temperature: 0.0\n'
        + metrics("bleu", "chrf", "ter"),
    )

    if "--big" in sys.argv:
        rng = random.Random(5)
        write_rows(data / "synth_big_dev.jsonl", [choice_row(rng) for _ in range(5)])
        write_rows(data / "synth_big_test.jsonl", (choice_row(rng) for _ in range(142_500)))
        task(
            "synth_big",
            header("synth_big", data, "multiple_choice", {"dev": None, "test": None})
            + MMLU.format(subject="everything")
            + metrics("acc"),
        )


if __name__ == "__main__":
    main()
