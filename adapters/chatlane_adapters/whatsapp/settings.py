"""Settings of the adapter of WhatsApp Cloud."""

from typing import Annotated

from pydantic import Field, SecretStr

from chatlane_adapters.kit.settings import AdapterSettings


class WhatsAppSettings(AdapterSettings):
    """The number, its tokens, and where requests come."""

    phone_number_id: Annotated[str, Field(description="Id of the phone number.")]
    access_token: Annotated[SecretStr, Field(description="Token of a system user.")]
    app_secret: Annotated[SecretStr, Field(description="By which Meta signs its requests.")]
    verify_token: Annotated[SecretStr, Field(description="Word that Meta shows at the set-up.")]
    template: Annotated[
        str | None,
        Field(
            description="Approved template for texts to people who have not written for 24 hours; its "
            "body has one placeholder, for the text."
        ),
    ] = None
    template_language: Annotated[str, Field(description="Language of the template.")] = "en_US"
    listen_host: Annotated[str, Field(description="Address for requests of Meta.")] = "127.0.0.1"
    listen_port: Annotated[
        int, Field(ge=0, le=65535, description="Port for requests of Meta, path `/whatsapp`.")
    ] = 3000
    api_url: Annotated[str, Field(description="Address of the Graph API, with its version.")] = (
        "https://graph.facebook.com/v23.0"
    )
