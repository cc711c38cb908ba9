"""Changes over the HTTP API: made once, on what the window has seen, and taken back."""

from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from nats.aio.client import Client

from chatlane_client import Turn
from tests.integration.client.routing import ACCOUNT, PLATFORM, working
from tests.integration.console.console_world import API, Browser, ConsoleWorld
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


async def new_session(browser: Browser) -> str:
    return f"{API}/sessions/{(await browser.post(f'{API}/sessions', json={})).json()['id']}"


async def test_a_change_on_an_old_version_is_refused(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        path = await new_session(ann)
        tag = (await ann.get(path)).headers["etag"]
        changed = await ann.patch(
            path,
            json={
                "title": "plan",
                "model": "small-1",
                "config": {"a": 1, "b": 2},
                "archived": True,
            },
            headers={"If-Match": tag},
        )
        assert changed.status_code == 200
        body = changed.json()
        assert (body["title"], body["model"], body["config"]) == (
            "plan",
            "small-1",
            {"a": 1, "b": 2},
        )
        assert body["archived_at"] is not None

        stale = await ann.patch(path, json={"title": "other"}, headers={"If-Match": tag})
        assert (stale.status_code, stale.json()["code"]) == (412, "stale")
        cleared = await ann.patch(
            path,
            json={"title": None, "model": None, "config": {"a": None}, "archived": False},
            headers={"If-Match": changed.headers["etag"]},
        )
        body = cleared.json()
        assert (body["title"], body["model"], body["config"]) == (None, None, {"b": 2})
        assert body["archived_at"] is None


async def test_a_repeated_change_is_made_once_and_keys_of_others_never_meet(
    console: ConsoleWorld,
) -> None:
    key = {"Idempotency-Key": uuid4().hex}
    async with console.person("ann") as ann, console.person("bob") as bob:
        first = await ann.post(f"{API}/sessions", json={}, headers=key)
        again = await ann.post(f"{API}/sessions", json={}, headers=key)
        others = await bob.post(f"{API}/sessions", json={}, headers=key)
        assert again.json() == first.json()
        assert others.json()["id"] != first.json()["id"]
        conflict = await ann.post(f"{API}/sessions", json={"model": "x"}, headers=key)
        assert (conflict.status_code, conflict.json()["code"]) == (409, "conflict")


async def test_turns_are_taken_back_put_back_copied_and_answered_again(
    console: ConsoleWorld, client: Client
) -> None:
    async def answer(turn: Turn) -> str:
        return f"answer to {turn.messages[-1].text}"

    async with working(client, answer), console.person("ann") as ann:
        path = await new_session(ann)

        async def texts() -> list[str]:
            return [row["content"] for row in (await ann.get(f"{path}/rows")).json()["rows"]]

        async def has_answer(text: str) -> bool:
            return f"answer to {text}" in await texts()

        for text in ("one", "two"):
            await ann.post(f"{path}/messages", json={"text": text})
            await eventually(partial(has_answer, text))

        rewound = await ann.post(f"{path}/rewind", json={"turns": 1})
        assert (rewound.status_code, rewound.json()["undone_text"]) == (200, "two")
        assert await texts() == ["one", "answer to one"]
        removed = await ann.get(f"{path}/removed")
        assert [row["content"] for row in removed.json()["rows"]] == ["answer to two", "two"]
        removal = removed.json()["rows"][0]["removal"]
        unversioned = await ann.post(f"{path}/restore", json={"removal": removal})
        assert unversioned.status_code == 428
        restored = await ann.post(
            f"{path}/restore",
            json={"removal": removal},
            headers={"If-Match": removed.headers["etag"]},
        )
        assert restored.json()["restored_rows"] == 2
        copied = (await ann.post(f"{path}/fork", json={"through_seq": 2})).json()
        rows = (await ann.get(f"{API}/sessions/{copied['id']}/rows")).json()["rows"]
        assert [row["content"] for row in rows] == ["one", "answer to one"]
        assert copied["parent_id"] == path.rpartition("/")[2]

        assert (await ann.post(f"{path}/retry")).status_code == 200
        await eventually(lambda: has_answer("two"))
        content = await ann.get(f"{path}/rows/1/content")
        assert content.json() == {"content": "one"}


async def test_a_question_is_answered_as_a_button(console: ConsoleWorld, client: Client) -> None:
    async def ask(turn: Turn) -> str:
        answer = await turn.ask("Which?", options=["tea", "coffee"], within=timedelta(minutes=5))
        return f"{answer.value} it is"

    async with working(client, ask), console.person("ann") as ann:
        path = await new_session(ann)
        async with ann.follow(f"{path}/events") as stream:
            await stream.until("ready")
            await ann.post(f"{path}/messages", json={"text": "a drink"})
            await stream.until("turn.asked")
            question = (await ann.get(f"{path}/question")).json()["question"]
            wrong = {"question_id": question["question_id"], "value": "beer"}
            assert (await ann.post(f"{path}/question", json=wrong)).status_code == 422
            right = {
                "question_id": question["question_id"],
                "value": question["options"][0]["value"],
            }
            assert (await ann.post(f"{path}/question", json=right)).status_code == 204
            await stream.until("turn.ended")
        assert (await ann.get(f"{path}/question")).json() == {"question": None}
        rows = (await ann.get(f"{path}/rows")).json()["rows"]
        assert rows[-1]["content"] == "tea it is"


async def test_a_search_finds_what_was_said(console: ConsoleWorld, client: Client) -> None:
    async def answer(_: Turn) -> str:
        return "yes"

    async with working(client, answer), console.person("ann") as ann:
        path = await new_session(ann)
        await ann.post(f"{path}/messages", json={"text": "the giraffe sleeps"})

        async def found() -> list[str]:
            hits = (await ann.get(f"{API}/search", params={"q": "giraffe"})).json()["hits"]
            return [hit["session_id"] for hit in hits]

        assert await eventually(found) == [path.rpartition("/")[2]]


async def test_operators_see_streams_and_dead_letters(console: ConsoleWorld) -> None:
    async with console.person("eve", "operators") as eve:
        await new_session(eve)
        overview = (await eve.get(f"{API}/operator/overview")).json()
        assert overview["sessions"]["total"] > 0
        assert {"INBOUND", "TURNS", "DEAD"} <= {it["name"] for it in overview["streams"]}
        assert len(overview["routers"]) == 1
        assert {it["owner"] for it in overview["partitions"]} == {*overview["routers"]}
        assert f"{PLATFORM}/{ACCOUNT}" in {
            f"{it['platform']}/{it['account']}" for it in overview["accounts"]
        }
        assert {"main"} <= {it["agent"] for it in overview["agents"]}
        declared = (await eve.get(f"{API}/operator/declarations")).json()
        assert {PLATFORM, "mail"} == {it["platform"] for it in declared["platforms"]}
        letters = await eve.get(f"{API}/operator/dead-letters", params={"reason": "too_deep"})
        assert letters.json() == {"letters": [], "next_cursor": None}


async def test_operators_list_the_sessions_of_one_person(console: ConsoleWorld) -> None:
    async with (
        console.person("ann") as ann,
        console.person("bob") as bob,
        console.person("eve", "operators") as eve,
    ):
        of_ann, of_bob = await new_session(ann), await new_session(bob)
        path = f"{API}/operator/sessions"
        me = (await ann.get(f"{API}/me")).json()

        async def listed(**query: str) -> set[str]:
            response = await eve.get(path, params=query)
            assert response.status_code == 200, response.text
            return {f"{API}/sessions/{it['id']}" for it in response.json()["sessions"]}

        assert {of_ann, of_bob} <= await listed()
        person = {"person_id": me["person_id"]}
        assert await listed(**person) == {of_ann}
        account = {"person_platform": PLATFORM, "person_account": ACCOUNT}
        assert await listed(**person, **account) == {of_ann}
        assert await listed(**person, state="running") == set()
        for wrong in (account, {"state": "asleep"}, {"unknown": "1"}):
            assert (await eve.get(path, params=wrong)).status_code == 422
        # A person cannot list the sessions of another one.
        assert (await bob.get(f"{API}/sessions", params=person)).status_code == 422
        assert (await bob.get(path, params=person)).status_code == 403


async def test_labels_on_an_old_version_are_refused(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        path = await new_session(ann)
        tag = (await ann.get(path)).headers["etag"]
        labelled = await ann.patch(path, json={"labels": ["a"]}, headers={"If-Match": tag})
        assert labelled.json()["labels"] == ["a"]
        stale = await ann.patch(path, json={"labels": ["b"]}, headers={"If-Match": tag})
        assert (stale.status_code, stale.json()["code"]) == (412, "stale")
        assert (await ann.get(path)).json()["labels"] == ["a"]


async def test_lists_take_the_filters_of_the_catalogue(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        plan, empty = await new_session(ann), await new_session(ann)
        await ann.patch(plan, json={"title": "Plan of the garden", "cwd": "/srv/garden"})
        for query, expected in (
            ({}, {plan, empty}),
            ({"hide_empty": "true", "pinned_first": "true", "tips_only": "true"}, {plan}),
            ({"title_part": "GARDEN"}, {plan}),
            ({"cwd": "/srv/garden"}, {plan}),
            ({"origin": "console", "without_origins": ["cron"]}, {plan, empty}),
            ({"without_origins": ["cron", "console"]}, set()),
            ({"archived": "true"}, set()),
            ({"active_before": "2020-01-01T00:00:00Z"}, set()),
        ):
            response = await ann.get(f"{API}/sessions", params=query)
            assert response.status_code == 200, response.text
            listed = {f"{API}/sessions/{it['id']}" for it in response.json()["sessions"]}
            assert listed == expected, query
        assert (await ann.get(f"{API}/sessions", params={"unknown": "1"})).status_code == 422


async def test_sessions_are_pinned_labelled_and_made_read_only(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        older, newer = await new_session(ann), await new_session(ann)
        body = (await ann.patch(older, json={"pinned": True, "labels": ["work", "garden"]})).json()
        assert (body["pinned"], set(body["labels"])) == (True, {"work", "garden"})
        page = (await ann.get(f"{API}/sessions", params={"pinned_first": "true"})).json()
        assert [f"{API}/sessions/{it['id']}" for it in page["sessions"]] == [older, newer]
        labelled = (await ann.get(f"{API}/sessions", params={"label": "garden"})).json()
        assert [f"{API}/sessions/{it['id']}" for it in labelled["sessions"]] == [older]

        open_one = await ann.patch(older, json={"read_only": True})
        assert (open_one.status_code, open_one.json()["code"]) == (409, "conflict")
        await ann.post(f"{older}/end")
        assert (await ann.patch(older, json={"read_only": True})).json()["read_only"]
        refused = await ann.post(f"{older}/reopen")
        assert refused.status_code == 409, refused.text

        body = (await ann.patch(older, json={"pinned": False, "labels": None})).json()
        assert (body["pinned"], body["labels"]) == (False, [])
        nothing = await ann.patch(older, json={"pinned": None})
        assert nothing.status_code == 422


async def test_sessions_are_put_into_folders(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann:
        path, other = await new_session(ann), await new_session(ann)
        key = {"Idempotency-Key": uuid4().hex}
        made = [
            (await ann.post(f"{API}/projects", json={"name": "Roof"}, headers=key)).json()
            for _ in range(2)
        ]
        assert made[0] == made[1]
        roof = made[0]["id"]
        taken = await ann.post(f"{API}/projects", json={"name": "roof"})
        assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
        garden = (await ann.post(f"{API}/projects", json={"name": "Garden"})).json()["id"]

        moved = await ann.patch(path, json={"project_id": roof})
        assert moved.json()["project_id"] == roof
        listed = (await ann.get(f"{API}/sessions", params={"project_id": roof})).json()
        assert [f"{API}/sessions/{it['id']}" for it in listed["sessions"]] == [path]
        unknown = await ann.patch(other, json={"project_id": str(uuid4())})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid")

        arranged = await ann.put(f"{API}/projects", json={"project_ids": [garden, roof]})
        folders = [(it["name"], it["sessions"]) for it in arranged.json()["projects"]]
        assert folders == [("Garden", 0), ("Roof", 1)]
        changed = await ann.patch(f"{API}/projects/{roof}", json={"colour": "#22c55e"})
        assert (changed.json()["name"], changed.json()["colour"]) == ("Roof", "#22c55e")
        assert (await ann.patch(f"{API}/projects/{roof}", json={})).status_code == 422

        assert (await ann.delete(f"{API}/projects/{roof}")).status_code == 204
        gone = await ann.delete(f"{API}/projects/{roof}")
        assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
        assert (await ann.get(path)).json()["project_id"] is None
        assert (await ann.patch(path, json={"project_id": garden})).status_code == 200
        out = await ann.patch(path, json={"project_id": None})
        assert out.json()["project_id"] is None


async def test_drafts_and_read_marks_are_those_of_the_person(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann, console.person("eve", "operators") as operator:
        path = await new_session(ann)
        kept = await ann.put(f"{path}/draft", json={"text": "the ro"})
        first = kept.json()["changed_at"]
        assert (await ann.get(path)).json()["draft"] == {"text": "the ro", "changed_at": first}
        refused = await ann.put(f"{path}/draft", json={"text": "from another window"})
        assert (refused.status_code, refused.json()["code"]) == (412, "stale")
        changed = await ann.put(f"{path}/draft", json={"text": "the roof", "replaces": first})
        assert changed.status_code == 200, changed.text

        assert (await ann.get(path)).json()["unread"] is None
        marked = await ann.put(f"{path}/read-mark", json={"through_seq": 0})
        assert marked.json() == {"through_seq": 0}
        assert (await ann.get(path)).json()["unread"] == 0

        seen = await operator.get(path.replace("/sessions", "/operator/sessions"))
        assert (seen.json()["draft"], seen.json()["unread"]) == (None, None)
        replaces = {"replaces": changed.json()["changed_at"]}
        removed = await ann.put(f"{path}/draft", json={"text": "", **replaces})
        assert removed.json() == {"changed_at": None}
        assert (await ann.get(path)).json()["draft"] is None
