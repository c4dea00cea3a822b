"""Sharing a log: writing beside the event loop, leases of workers, and inboxes."""
