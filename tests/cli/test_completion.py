"""Completion scripts: they are what the shells accept, and bash really completes with them."""

import shutil
import subprocess

import pytest

from wirebound_lab.cli import main
from wirebound_lab.cli.completion import SHELLS, script
from wirebound_lab.cli.main import build_parser


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_commands_settings_and_values(shell):
    text = script(build_parser(), shell)
    for word in ("train", "sweep", "connectivity", "recommended", "deep-r", "digits"):
        assert word in text
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["wirebound", "tr"], {"train"}),
        (["wirebound", "train", "--conn"], {"--connectivity"}),
        (["wirebound", "train", "--preset", "rec"], {"recommended"}),
        (["wirebound", "train", "--data", "di"], {"digits"}),
        (["wirebound", "data", "ver"], {"verify"}),
        (["wirebound", "reproduce", "fig1"], {"fig1a"}),
    ],
)
def test_bash_completes(words, wanted, tmp_path):
    if not shutil.which("bash"):
        pytest.skip("there is no bash on this machine")
    (tmp_path / "c.bash").write_text(script(build_parser(), "bash"))
    line = f"source {tmp_path / 'c.bash'}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
    line += "function=$(complete -p wirebound | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
    line += f"$function wirebound {words[-1]} {words[-2]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", line], capture_output=True, text=True)
    assert wanted <= {word.strip() for word in done.stdout.splitlines()}, done.stderr


def test_the_command_prints_it(capsys):
    assert main(["completion", "bash"]) == 0
    assert "complete" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tea"])
    assert ended.value.code == 2
