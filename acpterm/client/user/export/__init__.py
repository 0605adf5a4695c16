"""What is kept of a terminal in files, and shown of them."""
