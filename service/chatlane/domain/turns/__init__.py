"""Rules of turns: claim, debounce, input during a turn, cancellation, retry, and end."""
