"""Sign-in: who a browser is, and the cookie that remembers it."""
