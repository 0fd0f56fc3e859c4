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


def processes(node, tenant):
    return show(node, "MainPID", "NRestarts") + [runner_of(node, tenant)]


def works(node, tenant):
    """Of that node's, all the while the block runs."""
    return at_work(Client(node, tenant), lambda: processes(node, tenant))


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


# There is no internet here, and no name of it.
OFFLINE = {"egress-public", "dns"}

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
        counts = flood(machine, 300)
        assert set(counts) == {"401", "429"} and counts["429"] > 200, counts
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
    assert small.once("rm filler; echo room >file; cat file") == "room\n"
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
        running = machine.succeed(f"readlink /proc/{runner_of(machine, 'acme')}/exe").strip()
        assert running == DATA["runners"][program], running
        # The way back leaves what it does not know.
        assert int(sql(machine, database, "SELECT count(*) FROM app.migration")) == known + 1
        acme.answer(over_upgrade if place else over_rollback)
        before = acme.everything(session, turn)

with subtest("a database server of the operator's, by its socket"):
    external.wait_for_unit("postgresql.service")
    external.succeed("systemctl start cloister-database.service")
    as_superuser = f"setpriv --reuid postgres --regid postgres --clear-groups {DATA['psql']} -c"
    external.succeed(f"""cd / && {as_superuser} "ALTER ROLE cloister_owner PASSWORD '{DATA['password']}'" """)
    external.succeed(f"systemctl start {SERVICE}")
    external.wait_for_unit(SERVICE)
    check_turn(external, "acme")
    check_doctor(external, OFFLINE)
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
