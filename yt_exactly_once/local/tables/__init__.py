"""What a table is: types, schemas, the check and the stored form of values, keys and layout."""
