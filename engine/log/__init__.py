"""The log: records, stores, replay, verification, forks, diffs and retention."""
