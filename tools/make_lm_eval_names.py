"""Write the names of lm-eval's tasks into src/assay/catalog/lm_eval_names.xz.

usage: python tools/make_lm_eval_names.py [FOLDER]    FOLDER holds an unpacked lm_eval, as `make test` puts it there
"""

import sys
from pathlib import Path

from assay.catalog.index import Index, index_root
from assay.catalog.lm_eval_names import FILE, KINDS, packed_names
from assay.catalog.roots import Root


def names_in(folder: Path) -> dict[str, list[str]]:
    """The names of every kind in a folder of tasks."""
    root = Root(str(folder), "lm_eval")
    index = Index([(root, index_root(root))])
    return {kind: index.names(kind) for kind in KINDS}


if __name__ == "__main__":
    above = Path(sys.argv[1] if len(sys.argv) > 1 else Path(sys.prefix) / "lm_eval")
    names = names_in((above / "lm_eval/tasks").resolve())
    FILE.write_bytes(packed_names(names))
    print(f"{FILE.name}: {', '.join(f'{len(names[kind]):,} {kind}s' for kind in KINDS)}, {FILE.stat().st_size:,} bytes")
