"""Moves and keeps blocks over time: sealed tiers, the leases that open them, and their keys."""
