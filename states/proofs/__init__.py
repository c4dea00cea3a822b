"""What can be proved of a chart before it runs: exploration, solver, bounds and findings."""
