"""A Discord on this machine: gateway and REST API on real sockets, with faults on demand."""

from chatlane_devkit.platforms.discord.server import DiscordServer, open_discord
from chatlane_devkit.platforms.discord.world import Channel, Person

__all__ = ["Channel", "DiscordServer", "Person", "open_discord"]
