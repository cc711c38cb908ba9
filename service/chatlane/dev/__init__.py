"""What only embedded mode needs: real servers from wheels, the feed and the demo."""
