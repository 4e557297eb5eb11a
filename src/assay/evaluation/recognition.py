"""Whether the models of a run are those that its folder was begun with: servers may move, and are known by what they say."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from assay.engine.retry import retry_before_run
from assay.errors import Place, Problem
from assay.evaluation.conduct import run_async
from assay.evaluation.models import UNDER_TEST
from assay.models.protocol import AnyModel, Remote
from assay.models.servers.server_model import NONDETERMINISTIC, ServerModel
from assay.runs.folder import RunError, RunFolder
from assay.runs.run import Run

WITH_ADDRESSES = 1
"""The format of folders whose keys hold the addresses of servers."""


def served_facts(model: AnyModel) -> dict[str, Any]:
    """What a manifest notes of a model behind a server: where it was, and what it said."""
    return {"addresses": model.addresses, "probe": model.probed} if isinstance(model, ServerModel) else {}


def introduced(models: Mapping[str, AnyModel], folder: str | None, *, force: bool) -> None:
    """Greet the models of a run; in a folder that has a run already, refuse others than it was begun with."""
    for model in models.values():
        if isinstance(model, Remote):
            run_async(retry_before_run(model.greet))
    before = _manifest(folder)
    for role, model in models.items():
        noted = _noted(before, role)
        if not isinstance(model, ServerModel) or noted.get("identity") in (None, model.identity):
            continue
        recorded, said = str(noted["identity"]), (noted.get("probe") or {}).get("said")
        if before.get("format") == WITH_ADDRESSES:
            run_async(retry_before_run(partial(model.recognize_old, recorded)))
        elif isinstance(said, str):
            run_async(retry_before_run(partial(model.recognize, recorded, said)))
        if model.identity != recorded and not force:
            raise RunError([_other_model(Path(str(folder)), role, noted, model)])


def note_addresses(folder: RunFolder, models: Mapping[str, AnyModel]) -> None:
    """Note where the models of a resumed run are now."""
    for role, model in models.items():
        noted = _noted(folder.manifest, role)
        if isinstance(model, ServerModel) and noted:
            known = noted.get("addresses") or []
            noted["addresses"] = [*known, *(each for each in model.addresses if each not in known)]


def _manifest(folder: str | None) -> Mapping[str, Any]:
    """What is there, as far as it can be read: of the rest, opening the folder tells."""
    try:
        return Run.open(folder).manifest if folder is not None else {}
    except RunError:
        return {}


def _noted(manifest: Mapping[str, Any], role: str) -> dict[str, Any]:
    found = manifest.get("model") if role == UNDER_TEST else (manifest.get("roles") or {}).get(role)
    return found if isinstance(found, dict) else {}


def _other_model(folder: Path, role: str, noted: Mapping[str, Any], model: ServerModel) -> Problem:
    now = f"{model.name} {model.model} at {', '.join(model.addresses)}"
    args = noted.get("args") or {}
    given = args.get("base_url") or "?"
    places = noted.get("addresses") or ([given] if isinstance(given, str) else given)
    before = f"{noted.get('name')} {args.get('model', '')} at {', '.join(map(str, places))}"
    said, says = (noted.get("probe") or {}).get("said"), model.probed["said"]
    told = f"; it said {said!r:.100}, and now {says!r:.100}" if said not in (None, says) else ""
    told = "; to the greeting of version 0.1 it says something else than it did" if said is None else told
    varies = (
        " (a model that does not say the same twice is known by its address only)"
        if NONDETERMINISTIC in (said, says)
        else ""
    )
    what = f"the folder holds another run, of another {role}: {before} there, {now} here{told}{varies}"
    fix = "start the server with the model of the run; or choose another --output_path, or --force to move the old run aside"
    return Problem(Place(str(folder)), what, fix)
