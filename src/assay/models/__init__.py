"""Models behind one small protocol: what they can do, and how they are asked."""

from assay.models.dummy import Dummy as Dummy
from assay.models.protocol import Can as Can
from assay.models.protocol import Model as Model
from assay.models.scripted import Scripted as Scripted
