"""Real parts in a fake world: an engine without a model, a whole deployment in one process."""
