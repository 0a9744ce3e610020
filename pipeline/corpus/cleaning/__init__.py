"""Cleaning of a pair: the rules that remove rows, the search for duplicates, and the stage that applies them."""
