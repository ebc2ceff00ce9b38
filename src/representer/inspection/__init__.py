"""What a fitted function says of itself: how much it keeps, how sure it is, between which bounds it lies."""
