"""Charts as data: loading, extending, checking, and where each part stands in its file."""
