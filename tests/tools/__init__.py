"""Tools that are run by hand."""
