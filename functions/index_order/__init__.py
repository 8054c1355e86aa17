"""Keep the search view of orders."""
