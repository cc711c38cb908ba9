"""Ids of people and chats, session keys, aliases, owners, and dedupe digests."""
