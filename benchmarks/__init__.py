"""Timings against references, as ratios within one run."""
