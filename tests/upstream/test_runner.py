"""Where the runner puts YTsaurus's sources."""

import subprocess

from tests.upstream import runner

FILE = "yt/yt/tests/integration/test_it.py"


def test_later_files_lie_over_sources_of_their_own(tmp_path):
    """A run without them finds the sources as they were."""
    source, newer, folder = (tmp_path / name for name in ("source", "newer", "folder"))
    for name in (*runner._NEEDED, "yt/yt/tests/integration"):
        (source / name).mkdir(parents=True, exist_ok=True)
        (source / name / "kept").touch()
    (source / FILE).write_text("2023")
    (newer / FILE).parent.mkdir(parents=True)
    (newer / FILE).write_text("today")
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    for given, text in ((newer, "today"), (None, "2023")):
        plan = runner.Plan(source / ".git", "HEAD", folder, newer=given)
        runner._unpack(plan)
        assert (plan.tree / FILE).read_text() == text
        assert (plan.tree / FILE).with_name("kept").exists()
