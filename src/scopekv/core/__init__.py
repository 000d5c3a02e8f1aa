"""Scopes, policy, segments, tickets and block identity: values and functions of arguments alone."""
