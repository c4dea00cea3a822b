"""The commands, one module each; `app/cli/command_table.py` lists them."""
