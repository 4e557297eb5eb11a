"""The only place that waits: drives all plans, fills the model's window, writes responses down."""

from assay.engine.budget import Budget as Budget
from assay.engine.drive import Counts as Counts
from assay.engine.drive import Ended as Ended
from assay.engine.drive import Engine as Engine
from assay.engine.drive import Memory as Memory
from assay.engine.drive import Started as Started
