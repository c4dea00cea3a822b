"""The log: records, replay, verification, forks, diffs, seals, redaction and retention."""
