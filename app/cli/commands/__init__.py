"""The commands, one module each; `COMMANDS` in `app/cli/__init__.py` lists them."""
