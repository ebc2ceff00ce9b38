"""The gallery (``plot_*.py``), each a script to run, and the demo, which runs many and shows what came out."""
