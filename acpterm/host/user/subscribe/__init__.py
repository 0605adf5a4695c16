"""What a user's client is sent about one session: updates, and its terminals' output."""
