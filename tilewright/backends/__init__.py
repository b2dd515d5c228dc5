"""Targets under the names that users import."""
