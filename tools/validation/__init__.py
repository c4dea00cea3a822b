"""Tests which models can call tools: suites of cases, scoring, and a record of the results."""
