"""What the platform of the comparison counts."""

from typing import Any

from tests.benchmarks.comparison.chat_platform import ChatPlatform, Message, Outcome

FIRST, SECOND, THIRD = (Message("a", name) for name in ("a1", "a2", "a3"))
OTHER = Message("b", "b1")


async def say(platform: ChatPlatform, chat: str, text: str) -> None:
    """Send a message of the bot to a chat."""

    class Body:
        async def json(self) -> dict[str, Any]:
            return {"chat": chat, "text": text}

    await platform.send_message(Body())  # type: ignore[arg-type]


async def test_each_fault_that_people_see_is_counted_once() -> None:
    platform = ChatPlatform()
    for message in (FIRST, SECOND, THIRD, OTHER, FIRST):
        platform.write(message, "hello")
    await say(platform, "a", "0 a2")
    # Out of order, and without memory.
    await say(platform, "a", "0 a1")
    # A second time.
    await say(platform, "a", "1 a1")
    # A notice, and an answer to nothing.
    await say(platform, "a", "Your conversation starts over.")
    await say(platform, "a", "1 a9")
    assert platform.unanswered == [THIRD, OTHER]
    assert platform.outcome(stuck={"b"}) == Outcome(
        messages=4, lost=1, doubled=1, reordered=1, forgotten=1, stuck=1
    )
