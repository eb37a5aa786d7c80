"""The containers are servers with cards, as far as playbooks can tell."""


def test_systemd_runs_it(host):
    assert host.process.get(pid=1).comm in ("systemd", "init")
    assert host.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")


def test_python_can_make_environments(host):
    assert host.run("python3 -c 'import ensurepip, venv'").rc == 0


def test_playbooks_log_in_as_a_user_would(site):
    look = site.look()
    assert look.run.rc == 0, look.run.output[-3000:]
    assert look.survey["host"]["user"] == site.user
    assert [finding for finding in look.findings if finding["severity"] == "refuse"] == []
