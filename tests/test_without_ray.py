"""Without `--replicas`, `--ray` and `--serve` nothing of Ray is imported; without Ray, those are refused before any request."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = "'run', '--model', 'embedded', '--tasks', 'first_steps_sums', '--limit', '2', '--output_path', 'run'"
COMMANDS = {
    "import assay": "import assay, assay.public",
    "assay --help": "main(['--help'])",
    "assay run --help": "main(['run', '--help'])",
    "assay ls": "main(['ls', '--pattern', 'first_steps'])",
    "assay run": f"assert main([{RUN}]) == 0",
    "assay run --dry_run": f"assert main([{RUN}, '--dry_run']) == 0",
    "assay doctor": "main(['doctor'])",
}
CODE = """
import sys
from assay.cli import main
try: {}
except SystemExit: pass
print(*sys.modules, sep="\\n", file=open("imported", "w"))
"""


@pytest.mark.process
@pytest.mark.parametrize("what", COMMANDS)
def test_no_ray_is_imported_unasked(what: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CODE.format(COMMANDS[what])], cwd=tmp_path, capture_output=True, check=True)
    imported = {name.partition(".")[0] for name in (tmp_path / "imported").read_text().split()}
    assert "assay" in imported and "ray" not in imported


@pytest.mark.process
def test_without_ray_a_run_works_and_a_fleet_is_refused_before_any_request(tmp_path: Path) -> None:
    """As in an environment with the core alone: importing Ray fails."""
    blocked = "import sys\nsys.modules['ray'] = None\nfrom assay.cli import main\nsys.exit(main([{}]))"

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        options = ", ".join([RUN, *map(repr, more)])
        code = blocked.format(options)
        return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    refused = run("--replicas", "2")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert "Ray is not installed" in refused.stderr and "[ray]'" in refused.stderr
    assert "--shard" in refused.stderr  # the way without Ray
    assert not list(tmp_path.rglob("responses.jsonl"))
    assert run().returncode == 0
