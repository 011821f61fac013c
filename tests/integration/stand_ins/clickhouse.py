"""ClickHouse's engine (chDB) with users: those of a `users.d` file, by their passwords.

The engine knows one user, so what each of them may do holds only where `--only USER` names one: then it is
that user, with that user's grants and profile. What only the server has is not here.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import secrets
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from aiohttp import BasicAuth, web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from mycroft.local import store_connection
from mycroft.local.store_engine import Engine
from mycroft.local.store_http import build_app

_WRONG_PASSWORD = 516  # AUTHENTICATION_FAILED


def passwords(users: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Password of each user of a users file. Raises KeyError where the environment lacks one."""
    found = {}
    for user in ElementTree.parse(users).getroot().findall("users/*"):
        password = user.find("password")
        assert password is not None, f"{user.tag} has no password"
        found[user.tag] = environment[password.attrib["from_env"]]
    return found


def restricted(users: Path, name: str) -> ElementTree.Element:
    """A users file in which the engine's only user has the grants and the profile of `name`."""
    root = copy.deepcopy(ElementTree.parse(users).getroot())
    listed = root.find("users")
    assert listed is not None
    user = listed.find(name)
    assert user is not None, f"no user {name}"
    for other in list(listed):
        listed.remove(other)
    user.tag = "default"
    password, grants = user.find("password"), user.find("grants")
    assert password is not None
    assert grants is not None
    password.attrib.clear()
    # Our endpoint hands rows to the engine as a file.
    ElementTree.SubElement(grants, "query").text = "GRANT READ ON FILE"
    for kind in ("profiles", "quotas"):
        group = root.find(kind)
        ElementTree.SubElement(ElementTree.SubElement(root, kind) if group is None else group, "default")
    listed.append(user)
    return root


def admitted(passwords: Mapping[str, str], headers: Mapping[str, str], query: Mapping[str, str]) -> bool:
    """Whether a request names a user with the right password, in one of the ways that the server knows."""
    user, password = headers.get("X-ClickHouse-User", ""), headers.get("X-ClickHouse-Key", "")
    if "Authorization" in headers:
        basic = BasicAuth.decode(headers["Authorization"])
        user, password = basic.login, basic.password
    elif "user" in query:
        user, password = query["user"], query.get("password", "")
    return user in passwords and secrets.compare_digest(passwords[user], password)


def application(engine: Engine, passwords: Mapping[str, str]) -> web.Application:
    """The endpoint behind a check of passwords."""
    app = build_app(engine)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/ping" or admitted(passwords, request.headers, request.query):
            # The embedded store serves its own machine alone and knows that by this header.
            here = {**request.headers, "Host": "127.0.0.1"}
            return await handler(request.clone(headers=CIMultiDict(here)))
        text = f"Code: {_WRONG_PASSWORD}. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)\n"
        headers = {"X-ClickHouse-Exception-Code": str(_WRONG_PASSWORD)}
        return web.Response(status=403, text=text, headers=headers)

    app.middlewares.insert(0, check)
    return app


async def _serve(app: web.Application, address: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()
    print("serving", flush=True)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--users", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    known = passwords(options.users, os.environ)
    with tempfile.TemporaryDirectory() as folder:
        if options.only:
            known = {options.only: known[options.only]}
            users, config = Path(folder, "users.xml"), Path(folder, "config.xml")
            ElementTree.ElementTree(restricted(options.users, options.only)).write(users)
            config.write_text(f"<clickhouse><users_config>{users}</users_config></clickhouse>")
            store_connection._AS_A_SERVER += f"&config-file={config}"
        engine = Engine(options.data)
        asyncio.run(_serve(application(engine, known), options.address, options.port))
        engine.close()


if __name__ == "__main__":
    main()
