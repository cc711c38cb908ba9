"""What people do, in any order: they write, correct, take back, and give commands."""

from hypothesis import strategies as st

from tests.integration.any_order.base import Ground
from tests.integration.any_order.people import NEXT_ID, PLACES, Place, Said, file_of
from tests.integration.any_order.rules.events import happens, number, place
from tests.support.worlds.kernel import event


class Speaking(Ground):
    """People in chats."""

    @happens(8, where=place, count=st.integers(1, 4))
    def say(self, where: Place, count: int) -> None:
        """Somebody writes."""
        for _ in range(count):
            self._hear(self.story.new(where).event)

    @happens(2, where=place)
    def choose(self, where: Place) -> None:
        """Somebody writes the number of an option, whether something is asked or not."""
        self._hear(self.story.new(where, "1").event)

    @happens(of=number)
    def repeat(self, of: int) -> None:
        """A platform sends something again."""
        if self.story.by_mid:
            said = self._recent(of)
            self._hear(said.event)

    @happens(2, of=number, version=st.integers(1, 3))
    def edit(self, of: int, version: int) -> None:
        """Somebody corrects what they wrote; platforms may bring corrections in any order."""
        if self._spoken():
            self._edit(self._recent(of, self._spoken()), version)

    @happens(where=place)
    def overtake(self, where: Place) -> None:
        """A correction comes before the message."""
        said = self.story.new(where)
        self._edit(said, 1)
        self._hear(said.event)

    @happens(of=number)
    def delete(self, of: int) -> None:
        """Somebody takes back what they wrote."""
        if self._spoken():
            said = self._recent(of, self._spoken())
            assert said.place is not None
            self._hear(said.place.event(mid=said.mid, kind="delete"))

    @happens(
        4,
        where=place,
        words=st.sampled_from(
            [
                "/new",
                "/stop",
                "/undo",
                "/retry",
                "/retry",
                "/title it",
                "/resume 2",
                "/branch",
                "/new",
                "/status",
            ]
        ),
    )
    def command(self, where: Place, words: str) -> None:
        """Somebody tells the router something."""
        self._hear(self.story.new(where, words).event)

    @happens(2, where=place, word=st.sampled_from(["/steer", "/steer", "/queue"]))
    def pass_on(self, where: Place, word: str) -> None:
        """Somebody says how what they write is to meet a running turn."""
        said = self.story.new(where)
        said.event = where.event(mid=said.mid, text=f"{word} {said.mid}")
        self._hear(said.event)

    @happens(2, where=place, count=st.integers(2, 3))
    def show(self, where: Place, count: int) -> None:
        """Somebody shows an album."""
        album = f"album {len(self.story.by_mid)}"
        for _ in range(count):
            said = self.story.new(where)
            said.album = album
            said.event = where.event(mid=said.mid, text=said.text, album_id=album)
            self._hear(said.event)

    @happens(2, where=place, is_late=st.booleans())
    def announce(self, where: Place, is_late: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody sends a file, and its adapter takes a while to get it."""
        said = self.story.new(where)
        said.event = where.event(mid=said.mid, text=said.text, awaits_files=True)
        self._hear(said.event)
        if not is_late:
            self._bring(said)

    @happens(2, of=number)
    def bring(self, of: int) -> None:
        """The files of a message are there."""
        said = [one for one in self._spoken() if one.event and one.event.awaits_files]
        if said:
            self._bring(self._recent(of, said))

    def _bring(self, said: Said) -> None:
        assert said.place is not None
        files = [{"url": file_of(said.mid), "media_type": "image/png"}]
        event = said.place.event(
            mid=said.mid, kind="attachments", event_id=f"files of {said.mid}", attachments=files
        )
        self._hear(event)

    @happens()
    def move(self) -> None:
        """The group gets another id."""
        where = PLACES[1].fields | {"migrate_to": NEXT_ID}
        self._hear(event("telegram", kind="migration", **where))

    def _spoken(self) -> list[Said]:
        return [
            said
            for said in self.story.by_mid.values()
            if said.event is not None and not (said.event.text or "").startswith("/")
        ]

    def _recent(self, of: int, among: list[Said] | None = None) -> Said:
        said = [one for one in among or self.story.by_mid.values() if one.event is not None]
        return said[-1 - of % len(said)]

    def _edit(self, said: Said, version: int) -> None:
        assert said.place is not None
        text = f"{said.mid} v{version}"
        self._hear(said.place.event(mid=said.mid, kind="edit", version=str(version), text=text))
