"""Emulators and fakes of chat platforms, for tests and for `chatlane dev`."""
