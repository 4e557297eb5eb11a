"""Values that files have no easy word for, and secrets that must not reach one."""

from pathlib import Path

from assay.models import Scripted
from small_runs import run, write_task

CHOOSING = "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: gold\ndoc_to_choice: ['a', 'b']\nmetric_list: [{metric: acc}]\n"


def test_odd_numbers_are_written_and_read_back(tmp_path: Path) -> None:
    """Whole numbers beyond 64 bits in a document; a log-likelihood of minus infinity, which is asked for once."""
    write_task(tmp_path, [{"q": "a", "gold": 0, "big": 2**80}], CHOOSING)
    asked = []
    model = Scripted(
        loglikelihood=lambda context, text: asked.append(text) or (float("-inf") if text == " b" else -1.0, False),
        identity="odd",
    )  # type: ignore[func-returns-value]
    for _ in range(2):
        results = run(tmp_path, model, output_path=str(tmp_path / "run"))
        assert results["results"]["t"]["acc,none"] == 1.0
    assert sorted(asked) == [" a", " b"]


def test_secrets_in_metadata_reach_no_file(tmp_path: Path) -> None:
    write_task(tmp_path, [{"q": "a", "gold": 0}], CHOOSING)
    model = Scripted(loglikelihood=lambda context, text: (-1.0, False))
    run(tmp_path, model, output_path=str(tmp_path / "run"), metadata={"api_token": "canary-4711"})
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"canary" not in file.read_bytes(), file
