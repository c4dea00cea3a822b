"""Proofs about a chart before it runs: exploration, solver, bounds and findings."""
