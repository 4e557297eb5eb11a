"""Which models of a run have replicas: by the options of the run, or by the arguments of a model."""

from typing import NamedTuple

from assay.config.option import YAMLMapping, YAMLValue
from assay.config.run import RunConfig
from assay.errors import ConfigError
from assay.models.load import backend, load_model, parameters
from assay.models.protocol import AnyModel

DATA_PARALLEL, TENSOR_PARALLEL = "data_parallel_size", "tensor_parallel_size"
REPLICAS, GPUS = "replicas", "gpus_per_replica"


class FleetOptions(NamedTuple):
    """Options of a fleet; no replicas: the model is opened in this process."""

    replicas: int | str | None = None
    gpus_per_replica: float | None = None
    ray: str | None = None
    plugins: tuple[str, ...] = ()

    @classmethod
    def of_role(cls, config: RunConfig) -> "FleetOptions":
        """Those of a model with a role: the number of replicas is among its arguments."""
        return cls(ray=config.ray, plugins=config.plugins)

    @classmethod
    def of_run(cls, config: RunConfig) -> "FleetOptions":
        return cls(config.replicas, config.gpus_per_replica, config.ray, config.plugins)


def open_model(name: str, arguments: YAMLMapping, options: FleetOptions) -> AnyModel:
    """Open a model in this process; or a fleet of it, where the options or its arguments name replicas."""
    own, options = fleet_options(name, arguments, options)
    if options.replicas is None:
        return load_model(name, own)
    from assay.fleet.replicas import Fleet

    return Fleet(
        name,
        own,
        replicas=options.replicas,
        gpus_per_replica=options.gpus_per_replica,
        ray=options.ray,
        plugins=options.plugins,
    )


def fleet_options(
    name: str, arguments: YAMLMapping, options: FleetOptions
) -> tuple[dict[str, YAMLValue], FleetOptions]:
    """The arguments without those of a fleet, and the options with them."""
    own, known = dict(arguments), parameters(backend(name))
    for key in (REPLICAS, DATA_PARALLEL):
        number = own.pop(key, None) if key == DATA_PARALLEL or key not in known else None
        if number is None or (key == DATA_PARALLEL and number == 1):
            continue
        if number != "auto" and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            what = f"must be a positive number{' or auto' if key == REPLICAS else ''}, got {number!r}"
            raise ConfigError.at(f"model_args.{key}", what, f"write {key}=8")
        if options.replicas not in (None, number):
            what = f"{key}={number} and {options.replicas} replicas exclude each other"
            raise ConfigError.at(f"model_args.{key}", what, "give one of them")
        options = options._replace(replicas=number)
    if GPUS in own and GPUS not in known:
        options = options._replace(gpus_per_replica=_gpus(own.pop(GPUS)))
    if options.gpus_per_replica is not None and options.replicas is None:
        what, fix = "needs replicas", "add --replicas N, or --replicas auto"
        raise ConfigError.at(GPUS, what, fix)
    return own, options


def _gpus(value: YAMLValue) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigError.at(f"model_args.{GPUS}", f"must be a number, got {value!r}", "write 1 or 0.5")
    return float(value)
