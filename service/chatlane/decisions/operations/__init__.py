"""Operations on sessions that a chat command and an API request share."""
