"""What commands have in common."""
