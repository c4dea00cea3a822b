"""Parsers for parameters that several commands share: options, ages, variables, filters, keys, charts."""
