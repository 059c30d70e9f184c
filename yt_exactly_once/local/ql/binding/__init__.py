"""From the syntax tree to typed expressions over the columns of tables."""
