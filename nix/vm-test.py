# What is shown in the machines of vm-test.nix, with what is in vm-client.py.

SYSTEM = "/run/booted-system"
MIB = 1 << 20


def switch(node, name=None):
    """To a specialisation, or back to what was booted."""
    where = f"{SYSTEM}/specialisation/{name}" if name else SYSTEM
    node.succeed(f"{where}/bin/switch-to-configuration test")


def refused_switch(node, name):
    """What the service's journal then says."""
    moment = now(node)
    node.fail(f"{SYSTEM}/specialisation/{name}/bin/switch-to-configuration test")
    return journal_since(node, moment)


def works(node, tenant):
    """Of that node's, all the while the block runs."""
    client = Client(node, tenant)
    return at_work(client, lambda: show(node, "MainPID", "NRestarts") + [runner_of(client)])


def check_doctor(node, missing):
    """cloisterd doctor, in a unit like the service's, finds nothing wrong."""
    otherwise = ("Type=", "NotifyAccess=", "ExecReload=", "Restart", "TimeoutStartSec=", "X-")
    lines = [line for line in node.succeed(f"cat /etc/systemd/system/{SERVICE}").splitlines()
             if not line.startswith(otherwise)]
    text = "\n".join(lines).replace("/cloisterd serve ", "/cloisterd doctor ", 1)
    unit = text.replace("[Service]", "[Service]\nType=oneshot", 1)
    node.succeed(f"printf '%s\\n' {shlex.quote(unit)} >/run/systemd/system/cloister-doctor.service")
    node.succeed("systemctl daemon-reload")
    status, _ = node.execute("systemctl start cloister-doctor.service")
    said = node.succeed("journalctl -u cloister-doctor.service -o cat")
    assert status == 0, said
    verdicts = {name: verdict for verdict, name in
                re.findall(r"^(ok|failed|n/a) +([a-z0-9-]+) +\S", said, re.MULTILINE)}
    wrong = {name: verdict for name, verdict in verdicts.items() if verdict != "ok"}
    assert set(wrong) <= missing and "failed" not in wrong.values(), said
    assert {"cgroup", "installed", "limits", "memory-limit", "egress-host", "postgresql"} <= set(verdicts), said
    assert show(node, "ActiveState") == ["active"]


def check_turn(node, tenant):
    acme = Client(node, tenant)
    assert acme.call("/readyz")
    assert "gVisor" in acme.once("dmesg"), "not in gVisor"


def main_of(node):
    return show(node, "MainPID")[0]


def check_walls(node, tenant, database):
    """What the service's processes could do: none has power, and the server reaches its database's
    socket and no other, though the machine offers more."""
    main = main_of(node)
    server = server_of(node, main)
    for pid in (main, server, runner_of(Client(node, tenant))):
        found = powers(node, pid)
        assert {found[name].strip("0") for name in found if name.startswith("Cap")} == {""}, found
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2"), found
        assert set(found["Groups"].split()) <= {node.succeed("id -g cloister").strip()}, found
    assert strays(node) == []
    tried = reach(node, server, database)
    assert "/run/dbus/system_bus_socket" in tried, tried
    assert [name for name, result in tried.items() if result == "worked"] == [f"{database}/.s.PGSQL.5432"], tried
    node.succeed(f"test $(stat -c %a /run/dbus/system_bus_socket) = 666 -a -S {database}/.s.PGSQL.5432")


def strays(node):
    """What runs as the service user outside the service's cgroup."""
    look = "for p in $(pgrep -u cloister || true); do echo $p $(cat /proc/$p/cgroup 2>/dev/null || true); done"
    words = [line.split(" ", 1) for line in node.succeed(look).splitlines()]
    return [each for each in words if each[1:] and not each[1].startswith(f"0::/system.slice/{SERVICE}/")]


def check_unit(node):
    """Its user is in no group but its own; systemd finds no fault in it, and gives the hardening a
    figure that must not get worse."""
    node.succeed('test "$(id -Gn cloister)" = cloister')
    said = node.execute(f"systemd-analyze verify /etc/systemd/system/{SERVICE} 2>&1")[1]
    assert SERVICE not in said, said
    figure = node.succeed(f"systemd-analyze security --no-pager {SERVICE}").strip().splitlines()[-1]
    assert float(figure.split(":")[1].split()[0]) <= 3.0, figure


def come_back(node, before):
    """By itself, as another process."""
    def look():
        active, main = show(node, "ActiveState", "MainPID")
        return active == "active" and main not in ("0", before)

    eventually(look, 120, "the service restarted")
    assert show(node, "NRestarts") == ["1"] and strays(node) == []


# There is no internet here, and no name of it.
OFFLINE = {"egress-public", "dns"}
# What plays it is the other machine.
PUBLIC = "198.41.0.4"

start_all()
machine.wait_for_unit(SERVICE)

with subtest("a turn runs in a sandbox, under the unit's walls"):
    check_turn(machine, "acme")
    assert Client(machine, "globex").request("/v1/sessions")[0] == 401
    machine.succeed("test $(stat -c %U:%a /srv/cloister/acme) = cloister:700")

with subtest("the doctor is content"):
    check_doctor(machine, OFFLINE)

with subtest("the registry is a file of root's, and tokens are the service's alone"):
    machine.succeed("test ! -L /etc/cloister/tenants.json -a $(stat -c %U /etc/cloister/tenants.json) = root")
    machine.succeed("for f in /run/cloister-secrets/*; do test $(stat -c %U:%a $f) = cloister:400; done")

with subtest("the unit has its walls"):
    check_unit(machine)
    check_walls(machine, "acme", f"{STATE}/pg/run")

with subtest("the operator sees what runs"):
    report = json.loads(machine.succeed(f"cloisterd status --state {STATE} --json"))
    rows = {tenant["name"]: tenant["sandbox"] for tenant in report["tenants"]}
    assert rows["acme"]["state"] == "running" and rows["acme"]["tasks"] > 10 and rows["small"] is None, rows

with subtest("the root filesystem has what a tenant needs, and is not theirs"):
    look_around(Client(machine, "acme"), ("/srv/cloister", "/var/lib", "/dev/vd", "ext4"))

with subtest("from a sandbox the world is open, and what is near is not"):
    external.wait_for_unit("multi-user.target")
    far, near = (node.succeed("ip -4 -o address show dev eth1 | awk '{ print $4 }'").split("/")[0]
                 for node in (external, machine))
    external.succeed(f"ip address add {PUBLIC}/32 dev lo")
    machine.succeed(f"ip route add {PUBLIC}/32 via {far}")
    for node in (external, machine):
        node.succeed("systemd-run --unit=greeter -p WorkingDirectory=/var/empty python3 -m http.server 8000")
    own = machine.succeed("ip -4 -o address show dev eth0 | awk '{ print $4 }'").split("/")[0]
    targets = [f"{address}:8000" for address in (PUBLIC, far, near, own)]
    for target in targets:
        # It is policy and not absence when a sandbox is refused.
        machine.wait_until_succeeds(f"curl -sf http://{target}/ >/dev/null", 60)
    more = ["10.0.2.2:8000", "10.0.2.3:53", "127.0.0.1:4096", "169.254.169.254:80"]
    assert open_from(Client(machine, "acme"), targets + more) == [f"{PUBLIC}:8000"]

with subtest("a tenant comes, works and goes, while another one works"):
    globex = Client(machine, "globex")
    with works(machine, "acme"):
        switch(machine, "more")
        begin = time.monotonic()
        globex.call("/v1/models")
        assert time.monotonic() - begin < 1, "it answers late"
        session = globex.session()
        with stream_of(globex) as stream:
            turn = globex.start(session, "$ echo begun; sleep 600")
            stream.until_output(turn, "begun\n")
            machine.succeed(f"test -e {leaf('globex')}")
            switch(machine)
            stream.ended_at()
        assert globex.request("/v1/sessions")[0] == 401
        machine.wait_until_fails(f"test -e {leaf('globex')}", 60)
        machine.fail(f"pgrep -f '[c]loister-runner.* {globex.tenant['id']}'")
        # What it had is kept for when it comes back.
        switch(machine, "more")
        assert globex.call(f"/v1/turns/{turn}")["status"] == "cancelled"
        assert globex.run(session, "echo back") == "back\n"
        switch(machine)

with subtest("what is broken leaves the old state serving"):
    with works(machine, "acme"):
        for name, faults in (("broken", ["token of globex: /etc/tokens/nobody is not there"]),
                             ("unread", ["version: must be 1", "nonsense: unknown field"])):
            said = refused_switch(machine, name)
            assert all(fault in said for fault in faults), said
            assert show(machine, "ActiveState") == ["active"]
            assert Client(machine, "acme").request("/v1/sessions")[0] == 200
            assert Client(machine, "globex").request("/v1/sessions")[0] == 401
        switch(machine)

with subtest("of two tokens one goes, and with it its streams within a second"):
    old, new = Client(machine, "acme"), Client(machine, "acme", "next")
    assert new.request("/v1/sessions")[0] == 401
    switch(machine, "both")
    with stream_of(old) as ends, stream_of(new) as stays:
        switch(machine, "rotated")
        moment = float(now(machine))
        assert ends.ended_at() < moment + 1
        assert old.request("/v1/sessions")[0] == 401
        turn = new.start(new.session(), "$ echo rotated")
        stays.until_output(turn, "rotated\n")
        assert not stays.ended()
    switch(machine)
    assert old.request("/v1/sessions")[0] == 200 and new.request("/v1/sessions")[0] == 401

with subtest("wrong tokens in a flood are refused, and others go on"):
    with works(machine, "acme"):
        for counts in flood(machine, 300).values():
            assert set(counts) == {"401", "429"} and counts["429"] > 100, counts
        begin = time.monotonic()
        Client(machine, "acme").call("/v1/models")
        assert time.monotonic() - begin < 1, "right tokens wait for wrong ones"

with subtest("a sandbox has its limits, and what is beyond them ends by name"):
    small = Client(machine, "small")
    assert small.once("echo begun") == "begun\n"
    limits = {name: machine.succeed(f"cat {leaf('small')}/{name}").strip()
              for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert limits == {"memory.max": str(256 * MIB), "memory.swap.max": "0", "pids.max": str(64 + 3 * 32)}, limits
    with works(machine, "acme"), stream_of(small) as stream:
        hog = "dd if=/dev/zero bs=400M count=1 2>/dev/null | { head -c 1 >/dev/null; sleep 600; }"
        turn = small.start(small.session(), f"$ {hog}")
        stream.until_end(turn)
        assert stream.reasons(turn) == ["oom"], stream.events(turn)
        bomb = json.dumps({"command": "bomb() { bomb | bomb & }; bomb; sleep 600"})
        turn = small.start(small.session(), f"@shell {bomb}")
        small.wait_for(turn, "running")
        machine.sleep(3)
        small.call(f"/v1/turns/{turn}/cancel", method="POST")
        assert small.wait(turn)["turn"]["status"] == "cancelled"
        assert small.once("echo next") == "next\n"

with subtest("a workspace holds what its quota says"):
    small = Client(machine, "small")
    text = small.once("dd if=/dev/zero of=filler bs=64k count=256 2>&1; echo status $?")
    assert "No space left on device" in text or "Disk quota exceeded" in text, text
    assert "status 1" in text, text
    held = int(machine.succeed("stat -c %b /data/small/filler")) * 512
    assert 4 * MIB < held <= 8 * MIB, held
    with works(machine, "acme"):
        switch(machine, "larger")
        text = small.once("dd if=/dev/zero of=filler bs=64k count=192 2>&1; echo status $?")
        assert "status 0" in text, text
        small.once("rm filler")
        switch(machine)
    assert small.once("rm -f filler; echo room >file; cat file") == "room\n"
    assert "status 0" in Client(machine, "acme").once("dd if=/dev/zero of=filler bs=64k count=256 2>&1; echo status $?")

with subtest("a restored backup gives the same answers"):
    acme = Client(machine, "acme")
    back_up, restore = documented("Back up, restore")
    session = acme.session()
    turn = acme.start(session, "$ echo kept | tee file >~/home; cat file")
    acme.wait(turn)
    asked = acme.ask_person()
    before = acme.everything(session, turn)
    machine.succeed(back_up.replace("BACKUP", "/var/tmp/backup"))
    machine.wait_for_unit(SERVICE)
    assert acme.run(session, "echo since >file; cat file") == "since\n"
    machine.succeed(restore.replace("BACKUP", "/var/tmp/backup"))
    machine.wait_for_unit(SERVICE)
    assert acme.everything(session, turn) == before
    assert acme.run(session, "cat file ~/home") == "kept\nkept\n"
    acme.answer(asked)
    machine.succeed("rm -r /var/tmp/backup* /var/lib/cloister.old /srv/cloister.old")

with subtest("to the next release, with another runner and a migration more, and back"):
    acme = Client(machine, "acme")
    database = "ct_" + acme.tenant["id"].replace("-", "")
    known = int(sql(machine, database, "SELECT count(*) FROM app.migration"))
    session = acme.session()
    turn = acme.start(session, "$ echo this release | tee file")
    acme.wait(turn)
    over_upgrade, over_rollback = acme.ask_person(), acme.ask_person()
    before = acme.everything(session, turn)
    for place, program in (("next", "next"), (None, "this")):
        machine.succeed(f"cloisterd drain --state {STATE}")
        switch(machine, place)
        machine.wait_for_unit(SERVICE)
        assert acme.everything(session, turn) == before
        assert acme.run(session, "cat file") == "this release\n"
        running = machine.succeed(f"readlink /proc/{runner_of(acme)}/exe").strip()
        assert running == DATA["runners"][program], running
        # The way back leaves what it does not know.
        assert int(sql(machine, database, "SELECT count(*) FROM app.migration")) == known + 1
        acme.answer(over_upgrade if place else over_rollback)
        before = acme.everything(session, turn)

with subtest("Nix builds in a sandbox that has it"):
    switch(machine, "with-nix")
    machine.wait_for_unit(SERVICE)
    build_with_nix(Client(machine, "acme"))
    switch(machine)
    machine.wait_for_unit(SERVICE)

with subtest("a turn may end before the service stops, and started is ready"):
    acme = Client(machine, "acme")
    turn = acme.start(acme.session(), "$ sleep 4; echo done >late; echo finished")
    acme.wait_for(turn, "running")
    machine.succeed(f"systemctl stop {SERVICE}")
    assert show(machine, "Result", "ActiveState") == ["success", "inactive"]
    machine.fail(f"pgrep -u cloister || test -e {CGROUP}")
    machine.succeed(f"systemctl start {SERVICE}")
    assert acme.request("/readyz")[0] == 200
    assert acme.wait(turn)["output"]["assistantText"] == "finished\n"

with subtest("a runner that is killed leaves nothing, and its tenant alone notices"):
    switch(machine, "more")
    pids = show(machine, "MainPID", "NRestarts")
    kill_runner(Client(machine, "acme"), Client(machine, "globex"))
    assert show(machine, "MainPID", "NRestarts") == pids and strays(machine) == []
    # Of a tenant that does not come back, too.
    kill_tree(machine, runner_of(Client(machine, "globex")))
    machine.wait_until_fails(f"test -e {leaf('globex')}", 60)
    switch(machine)

with subtest("whatever is killed, nothing outlives it, and the service comes back with its work"):
    for victim in ("launcher", "server", "everything"):
        machine.succeed(f"systemctl reset-failed {SERVICE}")
        accepted, main = Accepted(Client(machine, "acme")), main_of(machine)
        kill_tree(machine, main, {"launcher": f"kill -KILL {main}", "server": f"kill -KILL {server_of(machine, main)}",
                                  "everything": f"systemctl kill -s KILL {SERVICE}"}[victim])
        come_back(machine, main)
        accepted.check()

with subtest("a hard reset in the middle of work loses nothing that was accepted"):
    # From here on the kernel writes only what somebody asks it to write.
    machine.succeed("sync; sysctl -q -w vm.dirty_writeback_centisecs=360000 vm.dirty_expire_centisecs=360000")
    accepted = Accepted(Client(machine, "acme"))
    machine.crash()
    machine.start()
    machine.wait_for_unit(SERVICE)
    assert show(machine, "NRestarts") == ["0"]
    accepted.check()
    assert Client(machine, "small").once("echo mine") == "mine\n"

with subtest("a database server of the operator's, by its socket"):
    external.wait_for_unit("postgresql.service")
    external.succeed("systemctl start cloister-database.service")
    as_superuser = f"setpriv --reuid postgres --regid postgres --clear-groups {DATA['psql']} -c"
    external.succeed(f"""cd / && {as_superuser} "ALTER ROLE cloister_owner PASSWORD '{DATA['password']}'" """)
    external.succeed(f"systemctl start {SERVICE}")
    external.wait_for_unit(SERVICE)
    check_turn(external, "acme")
    check_doctor(external, OFFLINE)
    check_walls(external, "acme", "/run/postgresql")
    external.fail(f"test -e {STATE}/pg/data")
    external.succeed("test $(stat -c %U:%a /run/cloister-secrets/database) = cloister:400")

with subtest("the operator's server restarts, and the service finds it again"):
    acme = Client(external, "acme")
    session = acme.session()
    before = show(external, "MainPID")
    external.succeed("systemctl restart postgresql.service")
    eventually(lambda: acme.request("/readyz")[0] == 200, 60, "it is ready again")
    assert acme.run(session, "echo again") == "again\n"
    assert show(external, "MainPID") == before
