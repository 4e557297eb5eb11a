"""The roles that scorers ask, as task files name them."""

import re
from typing import Any

_KEY = re.compile(r"(?i)api_?key|authorization|://[^/\s]*@")


def checked_role(role: object, model: Any = None) -> None:
    """Refuse what cannot be the name of a role, and a model that is named with its key."""
    if not str(role).isidentifier() or role == "model":
        raise ValueError(f"{role!r} is no name for a role: take one such as judge")
    if model is not None and _KEY.search(str(model)):
        raise ValueError("a key does not belong into a task file: put it into the environment, or give --model_role")
