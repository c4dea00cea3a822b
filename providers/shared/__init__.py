"""What adapters share: failures, finish reasons, stream framing, settings and addresses."""
