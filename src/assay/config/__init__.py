"""Text to frozen records, strictly: every problem at once, each with its place and its remedy."""
