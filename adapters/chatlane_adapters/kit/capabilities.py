"""Declare the capabilities of a platform as data; the runner and the documents read them."""

from dataclasses import dataclass

from chatlane_client import RateBudget, TextLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a platform.

    Attributes:
        platform: Name of the platform as chatlane.toml declares it.
        text_limit: The longest text of one message.
        has_typing: Whether a chat can show that an answer is being written.
        has_drafts: Whether an answer can be shown while it is written.
        has_buttons: Whether a message can have buttons; without, they are numbered lines of its text.
        has_edits: Whether a message can be replaced.
        has_idempotent_sends: Whether the platform recognises a second attempt to send a message.
        has_member_list: Whether the adapter reports the members of its rooms, so that the settings of the
            service may show rooms to them.
        has_readable_files: Whether the adapter can read the files of messages, so that they are kept
            in a store and voice messages become words.
        per_second: Messages that the platform accepts from an account in a second; None for no limit.
        per_chat_per_second: The same for one chat.
    """

    platform: str
    text_limit: TextLimit
    has_typing: bool = True
    has_drafts: bool = True
    has_buttons: bool = True
    has_edits: bool = True
    has_idempotent_sends: bool = False
    has_member_list: bool = False
    has_readable_files: bool = False
    per_second: float | None = None
    per_chat_per_second: float | None = None

    def budget(self) -> RateBudget:
        """Return the rates of an account that nothing has been sent from."""
        return RateBudget(per_second=self.per_second, per_chat_per_second=self.per_chat_per_second)
