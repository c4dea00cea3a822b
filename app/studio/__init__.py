"""The pages of `toolchart serve`: HTML from the server, small ES modules, and drawings as SVG."""
