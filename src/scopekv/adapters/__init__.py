"""Adapters touch the world and decide nothing."""
