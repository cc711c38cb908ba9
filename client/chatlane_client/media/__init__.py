"""Files of chats and of people, kept by reference; needs the extra `media`."""
