"""Files of MCP servers for daemons under test."""

import json

from daemon import write_file
from mcp.server import TOKEN


def declare(daemon, **servers):
    """Writes a file of them, by their ids: a URL, or an entry; and their token."""
    token = f"{daemon.var}/tokens/mcp"
    write_file(token, TOKEN + "\n")
    entries = []
    for name, entry in servers.items():
        entry = {"url": entry, "tokenFile": token} if isinstance(entry, str) else entry
        entries.append({"id": name.replace("_", "-"), **entry})
    path = f"{daemon.var}/mcp.json"
    write_file(path, json.dumps({"version": 1, "servers": entries}))
    return path


def allow(daemon, **lists):
    """Writes a registry in which these tenants have these servers."""
    tenants = [t.entry() for t in daemon.tenants.values()]
    for entry in tenants:
        if entry["name"] in lists:
            entry["mcp"] = lists[entry["name"]]
    daemon.write_registry({"version": 1, "tenants": tenants})
