"""Make decisions as pure functions of state, event, policy and time: no IO, clock or randomness."""
