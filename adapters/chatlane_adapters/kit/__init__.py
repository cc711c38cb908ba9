"""The parts that all adapters share: settings, runner, capabilities."""
