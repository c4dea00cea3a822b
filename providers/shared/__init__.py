"""Code that all adapters share: errors, finish reasons, stream framing, settings and addresses."""
