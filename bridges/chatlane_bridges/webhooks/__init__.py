"""Events of the service, pushed to HTTPS addresses with signatures of Standard Webhooks."""
