# Get all tasks at any depth
group.get_all_tasks()

# Get only direct children
group.get_direct_children()

# Custom traversal
group.traverse(lambda node: print(node.name))
