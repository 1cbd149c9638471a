"""Whole histories of conversations, made up at random, through the real core: twelve promises must hold."""
