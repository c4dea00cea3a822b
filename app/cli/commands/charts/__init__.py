"""Commands about charts, before they run and after."""
