"""Problems: what the learners solve, stated with tensors and values, without scikit-learn."""
