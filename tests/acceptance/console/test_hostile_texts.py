"""Texts that others wrote stay texts: they bring no markup, script, picture or address."""

import json
from collections.abc import Iterator

import pytest

from chatlane_client import AdapterClient
from chatlane_schemas import Attachment, Chat, Sender
from tests.acceptance.console.conftest import OpenWindow, Stage
from tests.integration.client.routing import ACCOUNT, PLATFORM, said

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

RUN = "window.broken = true"
TEXTS = (
    f"<script>{RUN}</script>",
    f"<img src=x onerror='{RUN}'>",
    f"<svg onload='{RUN}'><a href='javascript:{RUN}'>a</a></svg>",
    f"[link](javascript:{RUN})",
    f"[link](JaVaScRiPt:{RUN})",
    f"[link](&#106;avascript:{RUN})",
    f"[link](data:text/html,<script>{RUN}</script>)",
    f"[link](vbscript:{RUN})",
    "![picture](https://tracker.example/pixel.png)",
    f"<https://example.org/'onmouseover='{RUN}>",
    f"[reference]\n\n[reference]: javascript:{RUN}",
    f"`code <img src=x onerror='{RUN}'>`",
    f"```html\"><img src=x onerror='{RUN}'>\ntext\n```",
    f"| a <b onclick='{RUN}'>b</b> |\n|---|\n| <iframe srcdoc='<script>{RUN}</script>'> |",
    "<style>body { background: url(https://tracker.example/a) }</style>",
    f"<form action='https://evil.example'><input name=a autofocus onfocus='{RUN}'></form>",
    f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror={RUN}&gt;'>",
)

# What a page may never have made of a text.
FOUND = """
() => ({
  broken: window.broken === true,
  made: document.querySelectorAll(
    "script:not([src]), img:not([src='/icon.svg']), iframe, object, embed, form[action], style, base, "
    + ".text input, [onerror], [onload], [onclick], [onfocus], [onmouseover]"
  ).length,
  addresses: [...document.querySelectorAll("a")].map((a) => a.href)
    .filter((href) => !/^(https?|mailto|tel):/.test(href)),
  unguarded: [...document.querySelectorAll("a[href^=http]")]
    .filter((a) => new URL(a.href).origin !== location.origin && !a.rel.includes("noopener")).length,
})
"""
HARMLESS = {"broken": False, "made": 0, "addresses": [], "unguarded": 0}


def rows() -> Iterator[str]:
    """Yield the texts; the agent repeats each as Markdown."""
    yield from TEXTS
    yield "\n\n".join(TEXTS)


async def test_no_text_of_a_conversation_becomes_markup(stage: Stage, window: OpenWindow) -> None:
    adapter = AdapterClient(stage.client, platform=PLATFORM, account=ACCOUNT)
    requested: list[str] = []
    async with window("person-7") as seven:
        seven.page.on("request", lambda request: requested.append(request.url))
        for number, text in enumerate(rows()):
            event = said(text, chat="7").model_copy(
                update={
                    "sender": Sender(id="person-7", name=TEXTS[number % len(TEXTS)][:200]),
                    "chat": Chat(id="7", kind="dm", name=TEXTS[1]),
                    "attachments": (
                        Attachment(url=f"javascript:{RUN}", media_type="text/html", name=TEXTS[1]),
                        Attachment(
                            url="https://example.org/a", media_type="image/png", name=TEXTS[0]
                        ),
                    ),
                }
            )
            await adapter.publish(event)
        await seven.open()
        await seven.page.locator(".entry").first.click()
        await seven.page.locator(".row.assistant", has_text="mglyph").last.wait_for()

        assert await seven.page.evaluate(FOUND) == HARMLESS
        assert await seven.page.locator(".said", has_text="<script>").count() > 0
        await seven.say("wait <img src=x onerror='window.broken = true'>")
        await seven.page.locator(".row.live strong").wait_for()
        assert await seven.page.evaluate(FOUND) == HARMLESS
        stage.agent.go_on.set()
        elsewhere = [url for url in requested if not url.startswith(stage.console.url)]
        assert elsewhere == []
        assert seven.errors == []


async def test_no_address_of_the_console_runs_a_script(window: OpenWindow) -> None:
    places = (
        f"#/session/{json.dumps(TEXTS[1])}",
        f"#/new?say={TEXTS[1]}",
        f"#/{TEXTS[0]}",
        "#/session/%",
    )
    async with window("person-7") as seven:
        for place in places:
            await seven.open(place)
            await seven.page.locator("#main").wait_for()
            assert await seven.page.evaluate(FOUND) == HARMLESS
        assert seven.errors == []
