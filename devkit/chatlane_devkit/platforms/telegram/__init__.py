"""An emulator of the Bot API of Telegram: stateful, over HTTP, with faults on demand.

It keeps what people see and refuses what the Bot API refuses. `People` acts for test persons,
`Faults` breaks calls; both are also under `/_control` over HTTP.
"""

from chatlane_devkit.platforms.telegram.chats import Chat, Person
from chatlane_devkit.platforms.telegram.server import TelegramServer, open_telegram_server

__all__ = ["Chat", "Person", "TelegramServer", "open_telegram_server"]
