"""The interactive chat: input, screen, session and slash commands."""
