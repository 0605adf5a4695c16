"""The user's side of the host: methods, attached windows, followed output, subscriptions."""
