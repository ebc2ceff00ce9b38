"""What the demo, the papers and the benchmarks share: their commands, long runs that can be interrupted, and a page."""
