"""Settings of the adapter of mail."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from chatlane_adapters.kit.settings import AdapterSettings


class MailSettings(AdapterSettings):
    """The mailbox, where its mail comes in, and the server that sends."""

    address: Annotated[str, Field(pattern=r"^\S+@\S+$", description="Address of the mailbox.")]
    name: Annotated[str | None, Field(description="Name that recipients see.")] = None
    lmtp_host: Annotated[str, Field(description="Address for LMTP.")] = "127.0.0.1"
    lmtp_port: Annotated[int, Field(ge=0, le=65535, description="Its port.")] = 2400
    smtp_host: Annotated[str, Field(description="Server that sends.")] = "127.0.0.1"
    smtp_port: Annotated[int, Field(ge=1, le=65535, description="Its port.")] = 587
    smtp_security: Annotated[
        Literal["none", "starttls", "tls"], Field(description="How the connection is secured.")
    ] = "starttls"
    smtp_user: Annotated[str | None, Field(description="User of the server.")] = None
    smtp_password: Annotated[SecretStr | None, Field(description="Its password.")] = None
    retry_seconds: Annotated[
        float, Field(ge=1, description="Pause after the server puts a mail off.")
    ] = 60.0
    max_bytes: Annotated[int, Field(ge=1, description="The largest mail that is taken.")] = 2**24
