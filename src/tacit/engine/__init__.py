"""Sums of clipped gradients, wherever the rows are."""
