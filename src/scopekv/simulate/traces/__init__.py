"""Recorded workloads: readers, one file a format, that all give `TracedRequest`."""
