"""Settings of the adapter of Slack."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from chatlane_adapters.kit.settings import AdapterSettings


class SlackSettings(AdapterSettings):
    """Tokens of the app, how events come, and which messages are for the bot."""

    bot_token: Annotated[
        SecretStr,
        Field(description="Bot tokens (`xoxb-`) of the workspaces, separated by commas."),
    ]
    app_token: Annotated[
        SecretStr | None,
        Field(description="App token (`xapp-`): events come through a socket."),
    ] = None
    signing_secret: Annotated[
        SecretStr | None,
        Field(description="Signing secret: events come as HTTP requests to `listen_port`."),
    ] = None
    listen_host: Annotated[str, Field(description="Address for requests of Slack.")] = "127.0.0.1"
    listen_port: Annotated[
        int, Field(ge=0, le=65535, description="Port for requests of Slack, path `/slack`.")
    ] = 3000
    api_url: Annotated[str, Field(description="Address of the Web API.")] = "https://slack.com/api/"
    answers: Annotated[
        Literal["mentions", "threads"],
        Field(
            description="Which messages of channels are for the bot: those that mention it, or "
            "also those of threads in which it takes part."
        ),
    ] = "threads"
    observes: Annotated[
        bool,
        Field(description="Whether other messages of channels are kept as context."),
    ] = False
    is_agent: Annotated[
        bool,
        Field(description="Whether the app is declared as an agent: streams, status, stop button."),
    ] = True
    ask_commands: Annotated[
        frozenset[str],
        Field(description="Slash commands whose text is a message, such as `/ask`, as JSON list."),
    ] = frozenset()
    suggested_prompts: Annotated[
        tuple[str, ...],
        Field(max_length=4, description="What a new thread with the agent offers, as JSON list."),
    ] = ()

    home: Annotated[
        str,
        Field(max_length=3000, description="Markdown of the Home tab, shown when it is opened."),
    ] = ""

    @model_validator(mode="after")
    def _receives_once(self) -> Self:
        if (self.app_token is None) == (self.signing_secret is None):
            message = "set app_token for a socket or signing_secret for HTTP requests, not both"
            raise ValueError(message)
        return self
