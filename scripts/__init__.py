"""Tools of this repository's verbs; no part of what is installed."""
