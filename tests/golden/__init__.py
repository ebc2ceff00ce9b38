"""Answers of every learner, recorded once and compared with those of the present code."""
