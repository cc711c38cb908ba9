"""Export, erase and expire the data of people: rules, jobs and SQL."""
