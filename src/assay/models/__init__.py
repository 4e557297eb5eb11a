"""Models behind one small protocol: their capabilities, and how they are asked."""

from assay.models.protocol import Can as Can
from assay.models.protocol import Model as Model
from assay.models.scripted import Dummy as Dummy
from assay.models.scripted import Scripted as Scripted
