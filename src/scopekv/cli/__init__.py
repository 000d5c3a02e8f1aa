"""The command line: one file or folder a verb."""
