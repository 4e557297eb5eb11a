"""Prices of the models that the nodes of a graph ask."""

from collections.abc import Mapping

from assay.models.servers.server_model import Price, price_of
from assay.records import AnyJSON, JSONObject, json_number, mapping
from assay.runs.run import Run
from assay.scoring.judges import ROLE


def node_prices(run: Run, task: str) -> dict[str, Price | None]:
    """The price of the model that a node asks, by node; None where it has none, or where its model is not certain."""
    roles = mapping(run.manifest.get("roles"))
    under_test = mapping(run.results.config.get("model_args"))
    prices: dict[str, Price | None] = {}
    for name, node in mapping(run.graph(task).get("nodes")).items():
        role = _role(mapping(node))
        known = mapping(roles.get(role)).get("args") if role in roles else None if role == ROLE else under_test
        prices[str(name)] = _price(mapping(known))
    return prices


def _role(node: JSONObject) -> str:
    """The role that a node asks: the name of its model, or the judge that one of its unit metrics is."""
    measured: AnyJSON = node.get("unit_metrics_map")
    for each in measured if isinstance(measured, list) else ():
        if isinstance(each, Mapping) and each.get("name") == "llm_judge":
            return str(mapping(each.get("params")).get("role") or ROLE)
    model = node.get("model")
    return str(model.get("name") or "") if isinstance(model, Mapping) else str(model or "")


def _price(arguments: JSONObject) -> Price | None:
    return price_of("", json_number(arguments.get("price_in")), json_number(arguments.get("price_out")), None)
