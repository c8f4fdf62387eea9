"""One script a claim. Each takes --quick and prints its figures as one JSON object in its last line."""
