"""Tools for development: embedded servers, the demo, and the judge of a run."""
