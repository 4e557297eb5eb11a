"""The engine, the only concurrency: drives plans, fills the models' windows, retries, stores responses."""

from assay.engine.drive import Ended as Ended
from assay.engine.drive import Engine as Engine
from assay.engine.drive import RequestCounts as RequestCounts
from assay.engine.drive import ResponseStore as ResponseStore
from assay.engine.drive import Started as Started
from assay.engine.lanes import Budget as Budget
