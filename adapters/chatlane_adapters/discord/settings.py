"""Settings of a Discord bot."""

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field, SecretStr

from chatlane_adapters.kit.settings import AdapterSettings

# Chat commands of chatlane that make sense in the menu of Discord.
COMMANDS: Final = (
    "new",
    "stop",
    "retry",
    "undo",
    "title",
    "sessions",
    "resume",
    "branch",
    "model",
    "status",
    "help",
)


class DiscordSettings(AdapterSettings):
    """The token of a bot, and what it takes as meant for it."""

    token: Annotated[SecretStr, Field(description="Token of the bot.")]
    unmentioned: Annotated[
        Literal["observed", "answered", "dropped"],
        Field(
            description="What becomes of messages in guilds that do not mention the bot: the agent "
            "reads them with its next turn, answers them, or never gets them."
        ),
    ] = "observed"
    commands: Annotated[
        tuple[str, ...],
        Field(description="Slash commands to register, without the slash; none registers none."),
    ] = COMMANDS
    catch_up_within: Annotated[
        timedelta,
        Field(
            ge=timedelta(0),
            le=timedelta(days=7),
            description="How old a message may be that was written while the bot was away.",
        ),
    ] = timedelta(days=1)
    max_upload_bytes: Annotated[
        int, Field(ge=0, description="Largest file that is uploaded; a larger one is a link.")
    ] = 10_000_000
    api_url: Annotated[str, Field(description="Base of the REST API.")] = (
        "https://discord.com/api/v10"
    )
