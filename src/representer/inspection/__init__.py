"""Questions to a fitted function: why it predicts what it does, how sure it is, and what it lost or kept."""
