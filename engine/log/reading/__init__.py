"""Reading: shows, exports, draws, compares and counts what a log has recorded, and derives nothing."""
