"""How threads wait for work: decided before torch is loaded, as it cannot be afterwards.

Fits alternate between torch, whose threads spin for some milliseconds after each operation, and SciPy's BLAS, which has
threads of its own and finds no free processor meanwhile. Threads that sleep instead cost torch some microseconds. What
the user or another package has decided stays.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
