"""A run on disk: manifest, journal of responses, samples, results."""
