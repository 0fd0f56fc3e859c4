"""The core of the end-to-end suite, on the installed service: the same tests as on a developer's
machine, where the boundary is another."""

import pytest

# pytest runs here what it finds by name.
import test_isolation
from test_api import test_a_question_is_asked_and_answered  # noqa: F401
from test_events import (  # noqa: F401
    test_replay_goes_on_after_the_last_id, test_the_events_of_a_turn)
from test_isolation import (  # noqa: F401
    test_datagrams_are_refused_too, test_mounts_name_no_host_path,
    test_no_hard_link_crosses_the_walls, test_no_powers, test_no_raw_sockets,
    test_there_is_no_ipv6, test_tokens_are_not_on_command_lines, test_what_can_be_reached)
from test_limits import test_exit_codes_and_signals  # noqa: F401

# They walk through the whole root filesystem or start dozens of programs, which an emulated
# processor takes half a minute for each; what they look at is the same in either boundary.
test_no_socket_of_the_host = pytest.mark.long(test_isolation.test_no_socket_of_the_host)
test_tenants_share_no_file = pytest.mark.long(test_isolation.test_tenants_share_no_file)
test_the_environment_holds_no_secret = \
    pytest.mark.long(test_isolation.test_the_environment_holds_no_secret)
test_the_root_filesystem_is_read_only = \
    pytest.mark.long(test_isolation.test_the_root_filesystem_is_read_only)
