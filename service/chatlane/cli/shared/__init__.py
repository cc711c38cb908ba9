"""Output, options and error reports that all commands share."""
