"""From the text of a query to its syntax tree, and back to the names that the server gives to columns."""
