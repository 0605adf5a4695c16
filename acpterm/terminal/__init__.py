"""What a terminal remembers and shows, and the pool of all of them."""
