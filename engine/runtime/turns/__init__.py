"""A turn as a program sees it: its options, and the handle of its conversation."""
