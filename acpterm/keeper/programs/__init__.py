"""What the keeper keeps: children on PTYs, from spawn to reaping, and their output."""
