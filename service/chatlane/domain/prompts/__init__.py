"""What a prompt says of the place, the people and the destinations of a conversation."""
