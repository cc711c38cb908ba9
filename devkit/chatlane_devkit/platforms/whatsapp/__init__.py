"""A WhatsApp Cloud for tests: one number, signed requests, and refusals on demand."""
