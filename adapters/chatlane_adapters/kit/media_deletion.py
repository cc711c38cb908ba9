"""Delete files of chats on request of an operator."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from chatlane_adapters.kit.settings import AdapterMediaSettings, AdapterSettings
from chatlane_client.media.store import MediaStoreError, open_media


async def deleted_files(
    keys: Sequence[str], chat: str | None, older_than_days: float | None
) -> int:
    """Delete files by key, of a chat, and by age; return how many.

    Raises:
        MediaStoreError: No store is set, or a chat is given without its platform.
    """
    async with open_media(AdapterMediaSettings()) as media:
        if media is None:
            raise MediaStoreError("set CHATLANE_ADAPTER_MEDIA_URL to the store of the adapters")
        count = await media.delete(*keys)
        if chat is not None:
            settings = AdapterSettings()
            if settings.platform is None:
                raise MediaStoreError("set CHATLANE_ADAPTER_PLATFORM to the platform of the chat")
            count += await media.delete_chat(settings.platform, settings.account, chat)
        if older_than_days is not None:
            before = datetime.now(UTC) - timedelta(days=older_than_days)
            count += await media.delete_older(before)
        return count
