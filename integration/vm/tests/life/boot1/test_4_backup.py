"""Back up and restore, with the commands of docs/operate-debian.md."""

import os
import shutil

from service import STATE, WORKSPACES, documented, follow
from test_operate import everything

BACKUP = "/var/tmp/backup"


def test_a_restored_backup_gives_the_same_answers(service, acme, globex, capsys):
    back_up, restore = documented("operate-debian.md", "Back up, restore")
    session = acme.session()
    turn = acme.start(session, "$ echo kept | tee file >~/home; cat file")
    assert acme.wait(turn, 120).text == "kept\n"
    asked = acme.start(acme.session(), "? go on | yes | no")
    acme.wait_for(asked, "waiting_for_input", 60)
    other = globex.session()
    before = everything(acme, session, turn)
    follow(back_up, BACKUP=BACKUP)
    with capsys.disabled():
        print(f"\n    the backup has {os.path.getsize(BACKUP + '.tar.gz') >> 20} MiB")
    assert acme.run(session, "$ echo since >file; echo since >~/home; cat file", 120).text == "since\n"
    globex.call("DELETE", f"/v1/sessions/{other}", status=204)
    follow(restore, BACKUP=BACKUP)
    assert everything(acme, session, turn) == before
    assert globex.call("GET", f"/v1/sessions/{other}")["id"] == other
    assert acme.run(session, "$ cat file ~/home", 120).text == "kept\nkept\n"
    # What waited for a person goes on from there.
    request = acme.call("GET", "/v1/requests")["data"][0]["id"]
    acme.call("POST", f"/v1/requests/{request}/resolve", {"decision": "yes"})
    assert acme.wait(asked, 120).status == "completed"
    for path in (f"{STATE}.old", f"{WORKSPACES}.old"):
        shutil.rmtree(path)
    os.unlink(f"{BACKUP}.tar.gz")
