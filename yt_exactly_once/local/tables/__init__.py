"""Types, schemas and layouts of tables, and the stored form of their values and keys."""
