"""The parts that the handlers of all frameworks share: rows, live pieces, approvals, files, errors."""
