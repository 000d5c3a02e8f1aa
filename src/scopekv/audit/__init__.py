"""Attacks on a deployment, and the measures that say whether its isolation held."""
