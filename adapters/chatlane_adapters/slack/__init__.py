"""The adapter of Slack: one app, in one workspace or several."""
