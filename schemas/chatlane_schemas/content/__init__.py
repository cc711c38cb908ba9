"""Content of chat messages: buttons, replies, quotes, visible text, and their form in prompts."""
