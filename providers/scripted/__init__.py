"""A provider that follows a script: for rehearsals and tests, offline and deterministic."""
