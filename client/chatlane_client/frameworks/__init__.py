"""Turn handlers from agents of other frameworks; each needs the extra of its name."""
