"""The interactive chat of `toolchart chat`: input, slash commands, session and screen."""
