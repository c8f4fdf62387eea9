"""What an attack returns, stores and shows."""
