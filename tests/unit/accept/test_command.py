"""The command line: what is refused before anything is asked."""

from __future__ import annotations

import shutil

import pytest

from modelyard import checkout, cli
from modelyard.accept import command, state_dir


@pytest.fixture
def never(monkeypatch):
    """Nothing may be asked."""

    def asked(*args, **more):
        raise AssertionError("something was asked")

    monkeypatch.setattr(command.course, "accept", asked)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--", "--ask-vault-pass"], "--ask-vault-pass waits for a person"),
        (["--", "-K"], "-K waits for a person"),
        (["--vault-id", "prod@prompt"], "prod@prompt waits for a person"),
        (["--random-delay", "-1"], "--random-delay must not be negative"),
        (["server1"], "server1 is no argument"),
    ],
)
def test_what_would_wait_for_a_person_is_refused(never, capsys, words, named):
    assert cli.main(["accept", "-i", "x", *words]) == 2
    assert named in capsys.readouterr().err


def test_a_wrong_configuration_is_refused_whole(never, capsys, tmp_path):
    (tmp_path / "m.yml").write_text("keep_run: 3\ntell: [{kind: webhok}]\n", encoding="utf-8")
    for name in ("accept", "tell"):
        assert cli.main([name, "-i", "x", "--config", str(tmp_path / "m.yml")]) == 2
        said = capsys.readouterr().err
        assert "did you mean keep_runs?" in said
        assert "did you mean webhook?" in said


def test_a_defect_of_this_tool_is_no_failure_of_a_service(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command.course, "accept", lambda *_: {}["lost"])
    assert cli.main(["accept", "-i", "x", "--state", str(tmp_path)]) == 5
    said = capsys.readouterr().err
    assert "KeyError: 'lost'" in said
    assert said.endswith("modelyard accept: a defect of this tool; report it\n")


@pytest.mark.parametrize("words", [[], ["accept"], ["accept", "-i", "x", "--depth", "deep"], ["acept"]])
def test_wrong_arguments(capsys, words):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2


def test_outside_of_a_checkout_it_says_where_it_belongs(tmp_path, capsys, monkeypatch):
    root = checkout.root()
    assert (root / "playbooks/acceptance.yml").is_file()
    other = tmp_path / "src/modelyard"
    shutil.copytree(root / "src/modelyard", other)
    with pytest.raises(checkout.Missing) as caught:
        checkout.root(other / "checkout.py")
    assert f"{tmp_path} has no playbooks/acceptance.yml, ansible.cfg, roles/acceptance" in str(caught.value)
    assert "make .venv/control" in str(caught.value)

    def missing():
        raise caught.value

    monkeypatch.setattr(cli.checkout, "root", missing)
    assert cli.main(["accept", "-i", "x"]) == 2


def test_words_for_ansible_stand_in_order_and_files_have_their_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pass").write_text("x", encoding="utf-8")
    given = ["-e", "a=b@c", "-e", "@pass", "--vault-password-file", "pass", "--vault-id", "prod@pass", "--depth", "quick"]
    args = cli.parser().parse_args(["accept", "-i", "x", *given, "--", "--forks", "5"])
    place = str(tmp_path / "pass")
    wanted = ["-e", "a=b@c", "-e", f"@{place}", "--vault-password-file", place, "--vault-id", f"prod@{place}"]
    assert command.run_words(args) == [*wanted, "-e", "acceptance_depth=quick", "--forks", "5"]


def test_inventories_of_one_name_have_their_own_folders_and_a_trailing_slash_means_nothing(tmp_path):
    for name in ("a/prod", "b/prod"):
        (tmp_path / name).mkdir(parents=True)
    environ = {"HOME": "/home/llm"}
    one, two = (state_dir.usual([str(tmp_path / name)], environ) for name in ("a/prod", "b/prod"))
    assert one.parent == two.parent
    assert str(one.parent) == "/home/llm/.local/state/modelyard/accept"
    assert one.name != two.name
    assert one.name.startswith("prod-")
    assert state_dir.usual([f"{tmp_path}/a/prod/"], environ) == one
    assert state_dir.usual(["server1,"], {"XDG_STATE_HOME": "/state"}).name.startswith("server1-")
    assert state_dir.slug([str(tmp_path / "a/prod/hosts.yml")]).startswith("prod-")
