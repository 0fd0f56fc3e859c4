"""The packet rules of a tenant's sandbox, read and broken from outside."""

import json
import os
import subprocess


def router(daemon, tenant):
    """A path that leads to the router's network namespace: slirp4netns holds it open."""
    pid = daemon.slirp(tenant).pid
    own = os.readlink("/proc/self/ns/net")
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
        if target.startswith("net:") and target != own:
            found.append(f"/proc/{pid}/fd/{fd}")
    assert len(found) == 1, f"namespaces that slirp4netns holds: {found}"
    return found[0]


def nft(daemon, tenant, *words):
    done = subprocess.run(["nsenter", f"--net={router(daemon, tenant)}", "nft", "--json", *words],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"nft {words}: {done.stderr}"
    return json.loads(done.stdout)["nftables"] if done.stdout.strip() else []


def counters(daemon, tenant):
    """{name: packets} of the named counters."""
    return {row["counter"]["name"]: row["counter"]["packets"]
            for row in nft(daemon, tenant, "list", "counters") if "counter" in row}


def remove_forward(daemon, tenant):
    """Takes the policy away; the translation of addresses stays."""
    chains = [row["chain"] for row in nft(daemon, tenant, "list", "chains") if "chain" in row]
    forward = [c for c in chains if c.get("hook") == "forward"]
    assert forward, f"no chain on the forward hook: {chains}"
    for chain in forward:
        where = (chain["family"], chain["table"], chain["name"])
        nft(daemon, tenant, "flush", "chain", *where)
        nft(daemon, tenant, "delete", "chain", *where)
