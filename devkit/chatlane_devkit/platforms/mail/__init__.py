"""A mail server for tests: delivers the mail of people by LMTP, and takes what a mailbox sends."""
