"""Providers that lie, each in one way, and one that does not: plugins by module name."""
