"""Loaded without being asked for."""
