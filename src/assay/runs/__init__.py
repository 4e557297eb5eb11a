"""A run on disk: manifest, responses, samples, results. All a report or a viewer reads comes from here."""
