"""The contract of chatlane: messages, subjects and streams."""
