"""What a worker leaves to its successor: records, and the keeper's store that holds them."""
