"""The adapter of WhatsApp Cloud: one phone number."""
