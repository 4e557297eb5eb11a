"""Two or more runs against each other: pairing, contrasts, gates, planning, backend verification."""
