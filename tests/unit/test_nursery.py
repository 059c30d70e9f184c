"""The interpreter calls an address that any user of the machine may take."""

import socket
import subprocess
import sys
import uuid

import pytest

from yt_exactly_once.testing import nursery


@pytest.mark.parametrize("user", ["os.getuid()", "-1"], ids=["own", "another user"])
def test_environment_goes_to_a_nursery_of_this_user_only(user):
    """Whoever took the address before the nursery gets no token."""
    address = f"\0{uuid.uuid4()}"
    program = nursery._INTERPRETER.format(python=sys.executable, address=address)
    pretend = f"import os\nuser = {user}\nos.getuid = lambda: user\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        with subprocess.Popen(
            [sys.executable, "-IS", "-c", pretend + program],
            env={"YT_TOKEN": "sesame"},
            stderr=subprocess.PIPE,
        ) as asking:
            connection, _ = listener.accept()
            got = connection.recv(1 << 16)
            connection.close()
            told = asking.stderr.read()
    if user == "-1":
        assert got == b""
        assert b"another user" in told
    else:
        assert b"sesame" in got
