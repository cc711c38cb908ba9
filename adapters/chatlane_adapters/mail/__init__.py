"""The adapter of mail: one mailbox, by LMTP and SMTP."""
