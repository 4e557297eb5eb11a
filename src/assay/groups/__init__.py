"""Groups as objects: members both ways, walks through the hierarchy, circles refused; and their numbers."""

from assay.groups.group import Group as Group
from assay.groups.group import StandardGroup as StandardGroup
from assay.groups.group import TagGroup as TagGroup
from assay.groups.manager import GroupManager as GroupManager
