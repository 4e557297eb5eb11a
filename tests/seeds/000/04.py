# tasks/__init__.py:566
raise ValueError("Found tasks in more than 1 group")
