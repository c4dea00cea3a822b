"""Who may do what over HTTP: tokens with roles, sessions of browsers, and the checks of every request."""
