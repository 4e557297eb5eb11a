"""Folders of YAML to an index, and names to what they select. Nothing is imported or executed on the way."""

from assay.catalog.catalog import Catalog as Catalog
from assay.catalog.nodes import GroupNode as GroupNode
from assay.catalog.nodes import Node as Node
from assay.catalog.nodes import TaskNode as TaskNode
