"""Rules of turns: claims, life cycle, retries."""
