"""Mining: proposes an agent spec from recorded conversations, with rules and how well they hold."""
