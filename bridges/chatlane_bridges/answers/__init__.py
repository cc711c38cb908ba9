"""The words of a person, the turn that answers them, and its answer while it comes."""
