"""Eight DCUs; playbooks work as a user who has no way to become root."""


def test_llm_is_nobody_special(site, host):
    assert site.user == "llm"
    user = host.user("llm")
    assert user.uid >= 1000
    assert sorted(user.groups) == ["llm", "render", "video"]


def test_llm_cannot_become_root(site):
    assert site.run(["sudo", "--non-interactive", "true"]).returncode != 0
    assert site.run(["cat", "/etc/shadow"]).returncode != 0


def test_llm_does_not_see_what_others_have_open(site):
    with site.process(["sleep", "600"], user="root", holds=["/etc/hostname"]) as pid:
        assert site.run(["ls", f"/proc/{pid}/fd"], user="root").returncode == 0
        assert site.run(["ls", f"/proc/{pid}/fd"]).returncode != 0


def test_eight_cards_are_seen_and_may_be_opened(site):
    cards = site.look().survey["cards"]["hygon"]
    assert [card["index"] for card in cards] == list(range(8))
    assert {file["state"] for card in cards for file in card["device_files"]} == {"ok"}
