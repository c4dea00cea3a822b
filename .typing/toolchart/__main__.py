"""`python -m toolchart` is the command line."""

from __future__ import annotations

from toolchart.app.cli import main

if __name__ == "__main__":
    main()
