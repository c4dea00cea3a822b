"""Which models can call tools: suites of cases, their scoring, and the record of what was found."""
