"""Another driver: `python -m tests.integration.other_driver QUERY` runs a query in a process of its own.

It prints what the query stopped with. It may stop itself on the way, and leave the rights of root behind.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from yt.wrapper import YtClient

from tests.integration.operated import OperatedOnSpark, StoppedError
from tests.local.operated import Operated

_DROP_FROM_BOUNDING_SET = 24
_DAC_OVERRIDE = 1


def start(query: Operated, pause: str = "") -> subprocess.Popen[str]:
    """Start a driver of a query.

    Args:
        query: of which the checkpoint and the tables are used.
        pause: where it stops itself in its first batch: `meanwhile` or `afterwards`.
    """
    told = [query.cluster.proxy_urls[0], query.folder, str(query.checkpoint), pause]
    command = [sys.executable, "-m", "tests.integration.other_driver", json.dumps(told)]
    # The interpreter of the tests belongs to the session of this process.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=kept, start_new_session=True
    )
    if pause:
        os.waitpid(driver.pid, os.WUNTRACED)
    return driver


def main() -> None:
    proxy, folder, checkpoint, pause = json.loads(sys.argv[1])
    # Root may write everywhere, whatever the permissions say.
    ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _DAC_OVERRIDE)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from yt_exactly_once.testing.session import open_session

    scratch = Path(checkpoint).parent / "other-driver"
    scratch.mkdir(exist_ok=True)
    cluster = SimpleNamespace(proxy_urls=[proxy], client=lambda: YtClient(proxy))
    spark = open_session(scratch, name="other")
    query = OperatedOnSpark(cluster, folder, Path(checkpoint), spark=spark)
    if pause:
        setattr(query, pause, lambda: os.killpg(0, signal.SIGSTOP))
    try:
        query.run()
    except StoppedError as error:
        sys.stdout.write(str(error))
    spark.stop()


if __name__ == "__main__":
    main()
