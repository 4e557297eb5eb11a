group.metadata = {
    "description": "Math word problems",
    "difficulty": "medium",
    "domain": "arithmetic",
    "citation": "...",
    "version": "2.0"
}
