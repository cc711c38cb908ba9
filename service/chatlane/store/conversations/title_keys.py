"""SQL expression that compares titles like `chatlane_schemas.visible_text.title_key`."""

from typing import Final, LiteralString

# Must be identical to the expression of the index in migration 0132, or Postgres does not use it.
TITLE_KEY: Final[LiteralString] = (
    "normalize(regexp_replace(title, '"
    r"[\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u202A-\u202E"
    r"\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U0001BCA0-\U0001BCA3"
    r"\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]"
    "', '', 'g'), NFC)"
)
