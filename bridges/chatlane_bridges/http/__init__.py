"""Parts of the HTTP servers of bridges: settings, keys, connection, errors, start."""
