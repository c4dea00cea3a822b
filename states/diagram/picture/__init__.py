"""Pictures of charts: SVG from a layered layout, and PNG from that SVG."""
