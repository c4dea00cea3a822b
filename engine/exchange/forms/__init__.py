"""Conversations in the forms of other APIs and libraries, for the one reader of messages."""
