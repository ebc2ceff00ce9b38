"""A property fuzzer: random learners on random data answer consistently and rightly, or refuse with advice."""
