"""All formats there are: those built in, and those that YAML files define, each standing or falling by itself."""

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import replace

from assay.catalog.catalog import Catalog
from assay.config.fields import Fields
from assay.config.format import FormatConfig
from assay.errors import ConfigError, Problem
from assay.samples.formats import FORMATS, format_from_mapping


class KnownFormats:
    """`whole` can be asked for; `broken` says of the others what is wrong. A format may start from any other."""

    def __init__(self, catalog: Catalog) -> None:
        self._fields: dict[str, Fields] = {}
        self.whole: MutableMapping[str, FormatConfig] = ChainMap({}, FORMATS)
        self.broken: dict[str, list[Problem]] = {}
        for name, entry in sorted(catalog.index.formats.items()):
            fields, problems = catalog.read(entry, thorough=True)
            if name in set(FORMATS):
                problems.append(Problem(fields.place("format"), f"format {name!r} is built in", "choose another name"))
            serious = [problem for problem in problems if problem.serious]
            if serious:
                self.broken[name] = serious
            else:
                self._fields[name] = fields
        for name in self._fields:
            self._settle(name, ())

    @property
    def problems(self) -> list[Problem]:
        return [problem for several in self.broken.values() for problem in several]

    def _settle(self, name: str, chain: tuple[str, ...]) -> None:
        """Make a format, and first the one it starts from."""
        if name in self.whole or name in self.broken or name not in self._fields:
            return
        fields = self._fields[name]
        base = fields.get("type", "mcqa")
        if name in chain or base == name:
            loop = " → ".join((*chain[chain.index(name) :], name) if name in chain else (name, name))
            what = f"formats start from each other in a circle: {loop}"
            self.broken[name] = [Problem(fields.place("type"), what, "let one start from a built-in format")]
            return
        self._settle(str(base), (*chain, name))
        if name in self.broken:
            return
        if base in self.broken:
            what = f"format {base!r}, which it starts from, is broken"
            self.broken[name] = [Problem(fields.place("type"), what, "correct that one")]
            return
        try:
            self.whole[name] = replace(format_from_mapping(fields, self.whole, default="mcqa"), format=name)
        except ConfigError as error:
            self.broken[name] = list(error.problems)
