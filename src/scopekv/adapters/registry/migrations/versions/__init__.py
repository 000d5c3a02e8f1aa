"""One file a revision. A released revision is never edited."""
