"""The sources: what delivers events to functions, and what it does when a delivery fails."""
