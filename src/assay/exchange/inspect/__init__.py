"""Import and export of Inspect logs, without inspect_ai."""
