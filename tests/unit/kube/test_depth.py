"""An object that is nested too deeply does not hide others."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.kube.errors import BadAnswerError
from harbourmaster.kube.streams import DEEPEST, STUB, shallow
from helpers.fake_api import FakeApi


def nest(levels):
    return '{"a":' * levels + '"]}"' + "}" * levels


def thing(name, levels):
    spec = f'{{"x":[1],"y":{nest(levels)},"z":"\\"{{["}}'
    return f'{{"metadata":{{"name":"{name}"}},"spec":{spec}}}'


def page(*items):
    return f'{{"metadata":{{"resourceVersion":"7"}},"items":[{",".join(items)}]}}'.encode()


def test_what_is_not_deep_stays_as_it_is():
    body = page(thing("a", 3), thing("b", DEEPEST - 4))
    assert shallow(body, 5) == body


def test_what_is_too_deep_is_a_text_in_its_place():
    body = page(thing("a", 3), thing("b", 5000), thing("c", 3))
    items = json.loads(shallow(body, 5))["items"]
    assert items[1]["spec"] == {"x": [1], "y": json.loads(STUB), "z": '"{['}
    assert [items[0], items[2]] == [json.loads(thing(name, 3)) for name in "ac"]


@pytest.mark.parametrize("body", [b"", b"]]]]", b'{"a', b"[" * 9000])
def test_what_is_no_json_stays_none(body):
    assert shallow(body, 5) == body


async def test_a_list_with_one_of_them_is_read():
    async with FakeApi() as api, api.client() as client:
        body = page(thing("a", 3), thing("b", 9000))
        api.fail_next("list", "", kind="garbage", body=body)
        parsed_page = await client.list(APPLICATIONS)
        assert [json.loads(bytes(item))["metadata"]["name"] for item in parsed_page.items] == [
            "a",
            "b",
        ]
        api.fail_next("list", "", kind="garbage", body=b"[" * 9000)
        with pytest.raises(BadAnswerError):
            await client.list(APPLICATIONS)


async def test_a_watch_with_one_of_them_goes_on():
    async with FakeApi() as api, api.client() as client, asyncio.TaskGroup() as group:
        version = (await client.list(APPLICATIONS)).resource_version
        events = client.watch(
            APPLICATIONS, resource_version=version, timeout_seconds=60, idle_timeout=10
        )

        async def first():
            async with contextlib.aclosing(events):
                return await anext(events)

        task = group.create_task(first())
        await api.until_watched()
        event = f'{{"type":"ADDED","object":{thing("b", 9000)}}}\n'
        api.send_raw(event.encode())
        decoded = json.loads(bytes((await task).object))
        assert decoded["spec"]["y"] == json.loads(STUB)
