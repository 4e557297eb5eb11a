"""Suggestions: slips of real names are found, and a name that is like none is answered with none."""

import re
from pathlib import Path

import pytest

from assay import ConfigError, TaskManager
from assay.catalog.index import Index, index_root
from assay.catalog.lm_eval_names import lm_eval_names, unknown_name
from assay.catalog.roots import Root, default_roots
from assay.errors import Place
from assay.similar import edit_distance, nearest
from conftest import a_task

SLIPS = """
gms8k gsm8k · gsm8 gsm8k · gsmk8 gsm8k · gsm-8k gsm8k · gsm_8k gsm8k · GSM8K gsm8k · gsm8k_main gsm8k · gsm gsm8k
grade_school_gsm8k gsm8k · arc_esy arc_easy · arceasy arc_easy · arc-easy arc_easy · arc_eazy arc_easy · easy_arc arc_easy
arc_chalenge arc_challenge · arc_challange arc_challenge · ARC-Challenge arc_challenge · hellaswg hellaswag
helaswag hellaswag · hella_swag hellaswag · hellaswags hellaswag · hellswga hellaswag · winogrand winogrande
winnogrande winogrande · wino_grande winogrande · winograd winogrande · mmlu_anatmy mmlu_anatomy
mmlu_anatomies mmlu_anatomy · anatomy mmlu_anatomy · anatmy_mmlu mmlu_anatomy · mmluanatomy mmlu_anatomy · mlmu mmlu
mmul mmlu · mbbp mbpp · hendrycks_mmlu mmlu · mmlu_high_school_phisics mmlu_high_school_physics
mmlu_highschool_physics mmlu_high_school_physics · truthfullqa truthfulqa · truthful_qa truthfulqa
truthfulqa_mc truthfulqa_mc1 · truthfulqa-mc2 truthfulqa_mc2 · if_eval ifeval · ifevl ifeval · ifevals ifeval
human_eval humaneval · humanevl humaneval · humeneval humaneval · mbp mbpp · bool_q boolq · boolqa boolq · piqua piqa
opnbookqa openbookqa · open_book_qa openbookqa · commonsenseqa commonsense_qa · comonsense_qa commonsense_qa
trivia_qa triviaqa · trivaqa triviaqa · socialiqa social_iqa · logiqua logiqa · lambda_openai lambada_openai
lambada_open_ai lambada_openai · wikitex wikitext · wiki_text wikitext · droop drop · minerva_maths minerva_math
minervamath minerva_math · math_500 hendrycks_math500 · hendricks_math hendrycks_math · gpqa_dimond gpqa_diamond_zeroshot
gpqa_diamond gpqa_diamond_zeroshot · bbh_fewshots bbh_fewshot · super_glue super-glue-lm-eval-v1 · blimb blimp
first_step_sum first_steps_sums · first_steps_sum first_steps_sums · firststeps first_steps · frist_steps first_steps
first_steps_fact first_steps_facts · leaderbord leaderboard · mmlupro mmlu_pro · mmlu_pro_biologie mmlu_pro_biology
medmqa medmcqa · pubmed_qa pubmedqa · sciqs sciq · race_high race · aime2024 aime24
natural_questions nq_open · big_bench_hard bbh · massive_multitask_language_understanding mmlu
"""
"""A mistyped name, and the one that is meant."""
UNRELATED = """
foo foobar banana pizza my_task my_eval mytask test tests demo example hello hello_world quux unicorn customer_support
customer_support_quality sales_emails invoice_extraction legal_contracts internal_benchmark prod_regression nightly acme_bot
acme_qa_v2 chatbot_tone toxicity_scan weather_reports stock_prices recipe_rating football_trivia_night dog cat cats rice pace
wine glee swim drip squid brown paper pencil keyboard mountain river station elephants zebra kangaroo sunshine xyz abc qwerty
asdf zzz 12345 a b ab x1 q my-company-eval tone_of_voice summaries_v3 sql_gen_v2 rag_accuracy retrieval_hits agent_traces
tool_use_checks ticket_triage pii_leaks prompt_injection_suite jailbreak_attempts refund_policy onboarding_questions crm_notes
robot_arm_plans drone_flight painting music_taste film_reviews_2024 mistral gpt4 claude sglang transformers dataset model
racecar artichoke human_resources summer_holiday nothing undefined todo 测试 ééé
"""
PAIRS = [tuple(pair.split()) for line in SLIPS.strip().splitlines() for pair in line.split("·")]


@pytest.fixture(scope="module")
def index() -> Index:
    """The names of a machine without lm_eval."""
    root = next(default_roots())
    return Index([(root, index_root(root))])


def test_slips_of_real_names_are_found_among_all_names_of_lm_eval(index: Index) -> None:
    fixes = {written: unknown_name(index, written, Place("tasks")).fix for written, _ in PAIRS}
    named = {written: re.findall(r"[\w-]+", fix.partition("?")[0]) for written, fix in fixes.items()}
    missed = {written: fixes[written] for written, meant in PAIRS if meant not in named[written]}
    assert len(PAIRS) >= 60
    assert missed == {}


def test_a_name_that_is_like_none_is_answered_with_none(index: Index) -> None:
    names = [*index.names("task", "group", "tag"), *lm_eval_names()]
    unrelated = UNRELATED.split()
    assert len(unrelated) >= 60
    assert {written: near for written in unrelated if (near := nearest(written, names))} == {}


@pytest.mark.parametrize("name", ["arc_easy", "ifeval", "gsm8k", "mmlu", "hellaswag", "piqa", "drop"])
def test_nothing_bundled_is_suggested_for_a_name_of_lm_evals(index: Index, name: str) -> None:
    assert nearest(name, index.names("task", "group", "tag")) == []


@pytest.mark.parametrize(
    ("written", "options", "expected"),
    [
        ("wandb_args", ["gen_kwargs", "tasks"], []),
        ("openvino", ["openai", "vllm"], []),
        ("sglang", ["openai", "vllm", "embedded"], []),
        ("accuracy", ["acc", "bleu", "selective_accuracy"], ["acc"]),
        ("num_fewshots", ["num_fewshot", "limit"], ["num_fewshot"]),
        ("ignore_cas", ["ignore_case", "k"], ["ignore_case"]),
        ("quesion", ["question", "answer", "choices"], ["question"]),
        ("kk", ["k", "of"], ["k"]),
        ("likelyhood", ["loglikelihood", "per_byte"], ["loglikelihood"]),
        ("", ["a"], []),
        ("_", ["a"], []),
    ],
)
def test_few_options_are_held_to_the_same_law(written: str, options: list[str], expected: list[str]) -> None:
    assert nearest(written, options)[:1] == expected


@pytest.mark.parametrize(
    ("one", "other", "edits"),
    [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("kitten", "sitting", 3), ("gsm8k", "gsm8k", 0), ("abc", "xyz", 3),
     ("flaw", "lawn", 2), ("ca", "abc", 3), ("hellaswag", "hella", 4)],
)  # fmt: skip
def test_edits_are_counted_as_by_hand(one: str, other: str, edits: int) -> None:
    """`ca` → `abc` takes three: after a swap, nothing is put between the two letters."""
    assert edit_distance(one, other, 9) == edits == edit_distance(other, one, 9)
    assert edit_distance(one, other, 1) == min(edits, 2)


def test_a_folder_of_lm_evals_tasks_needs_no_list(index: Index) -> None:
    with_folder = Index([*index.parts, (Root("/elsewhere/lm_eval/tasks", "include_path"), index.parts[0][1])])
    problem = unknown_name(with_folder, "gsm8k", Place("tasks"))
    assert "fetch" not in problem.fix and "0.4.13 has it" in problem.fix
    assert unknown_name(with_folder, "no_such_thing", Place("tasks")).fix == "`assay ls` lists every name"


def test_a_task_of_lm_evals_is_none_of_its_tags(index: Index) -> None:
    problem = unknown_name(index, "gsm8k", Place("tasks"), only_tag=True)
    assert problem.what == "no tag named 'gsm8k'"
    assert "has it" not in problem.fix


@pytest.mark.parametrize(
    ("own", "written", "said"),
    [
        ("", "piq", "did you mean piqa? That is lm-eval's"),
        ("", "aime2", "did you mean aime, aime24, aime25? They are lm-eval's"),
        ("piqb", "piq", "did you mean piqb, piqa? The last is lm-eval's"),
        ("aime26", "aime2", "did you mean aime26, aime, aime24, aime25? The last 3 are lm-eval's"),
        ("zebras", "zebra", "did you mean zebras?"),
    ],
)
def test_a_slip_says_which_of_the_names_that_may_be_meant_are_lm_evals(
    own: str, written: str, said: str, tmp_path: Path
) -> None:
    if own:
        (tmp_path / "own.yaml").write_text(a_task(own))
    with pytest.raises(ConfigError) as refused:
        TaskManager(include_path=tmp_path).load(written)
    assert said in str(refused.value)
    assert ("lm-eval's" in str(refused.value)) == ("lm-eval's" in said)
