"""To the next release, with another runner and a migration more, and back.

The next release is this one with what is in integration/vm/later; scripts/check-vm builds it."""

import hashlib
import json
import os
import shutil

import pytest

from service import LIB, STATE, programs_of, run
from test_database import Sql
from test_operate import everything

THIS, NEXT = "/opt/cloister/installed", "/opt/cloister/later"


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def change(service, release):
    """As docs/operate-debian.md has it; "install" is what "make install" comes to."""
    assert run("cloisterd", "drain", "--state", STATE).stdout.endswith("nothing runs\n")
    programs = programs_of(f"{release}{LIB}")
    shutil.copytree(programs, f"{LIB}/releases/{os.path.basename(programs)}", dirs_exist_ok=True)
    run("ln", "-sfn", os.readlink(f"{release}{LIB}/cloisterd"), f"{LIB}/cloisterd")
    run("systemctl", "daemon-reload")
    service.restart()


def runs_in(service, name, release):
    """The tenant's sandbox is run by the runner of that release."""
    return digest(f"/proc/{service.runner(name).pid}/exe") == \
        digest(f"{programs_of(f'{release}{LIB}')}/cloister-runner")


@pytest.fixture
def sql(service):
    return Sql(service)


def migrations(sql, name):
    return int(sql.ask("cloister_owner", sql.database(name), "SELECT count(*) FROM app.migration"))


def ask_person(client):
    turn = client.start(client.session(), "? go on | yes | no")
    client.wait_for(turn, "waiting_for_input", 60)
    return turn


def answer_one(client, turn):
    """A turn that has waited since before the change ends as if there had been none."""
    request = next(r["id"] for r in client.call("GET", "/v1/requests")["data"] if r["turnId"] == turn)
    client.call("POST", f"/v1/requests/{request}/resolve", {"decision": "yes"})
    assert client.wait(turn, 120).status == "completed"


def test_an_upgrade_and_its_rollback(service, acme, globex, sql):
    initech = service.client("initech")
    session = acme.session()
    turn = acme.start(session, "$ echo this release | tee file")
    acme.wait(turn, 120)
    over_upgrade, over_rollback = ask_person(acme), ask_person(acme)
    globex.session()
    known = migrations(sql, "acme")
    before = everything(acme, session, turn)

    change(service, NEXT)
    assert everything(acme, session, turn) == before
    assert acme.run(session, "$ cat file", 120).text == "this release\n"
    assert runs_in(service, "acme", NEXT) and not runs_in(service, "acme", THIS)
    answer_one(acme, over_upgrade)
    assert migrations(sql, "acme") == known + 1
    # Each tenant's database is migrated when that one comes, and not before.
    assert migrations(sql, "globex") == known
    theirs = initech.session()
    assert initech.run(theirs, "$ echo next release >file; cat file", 120).text == "next release\n"
    sql.ask("cloister_owner", sql.database("acme"), f"UPDATE app.session SET later = 'x' WHERE id = '{session}'")
    then = json.dumps(everything(acme, session, turn))

    change(service, THIS)
    assert json.dumps(everything(acme, session, turn)) == then
    # The one whose sandbox this release has started before, and the one whose never.
    assert acme.run(acme.session(), "$ echo back", 120).text == "back\n"
    assert initech.run(theirs, "$ cat file", 120).text == "next release\n"
    for name in ("acme", "initech"):
        assert runs_in(service, name, THIS), name
    globex.session()
    answer_one(acme, over_rollback)
    # What this release does not know stays as it was, and is there for the next upgrade.
    assert migrations(sql, "acme") == known + 1 and migrations(sql, "globex") == known
    assert acme.call("PATCH", f"/v1/sessions/{session}", {"title": "changed"})["title"] == "changed"
    assert sql.ask("cloister_owner", sql.database("acme"),
                   f"SELECT later FROM app.session WHERE id = '{session}'") == "x"


def test_what_this_release_cannot_work_with_it_leaves_alone(service, acme, globex, sql):
    """A migration that says so, and the tenant whose database has it; the others go on."""
    database = sql.database("globex")
    needed = migrations(sql, "globex") + 1
    sql.ask("cloister_owner", database, f"UPDATE app.migration SET oldest = {needed}")
    sql.ask("cloister_owner", "cloister", "UPDATE control.tenant SET schema_version = "
            f"{needed} WHERE id = '{service.tenants['globex'].id}'")
    try:
        service.restart()
        refused = globex.request("GET", "/v1/sessions")
        assert refused.status == 503, refused
        assert f"only one with migration {needed} can work with it" in service.log()
        acme.call("GET", "/v1/sessions")
    finally:
        sql.ask("cloister_owner", database, "UPDATE app.migration SET oldest = 0")
    globex.call("GET", "/v1/sessions")
