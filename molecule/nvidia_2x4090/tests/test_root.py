"""Two NVIDIA cards; playbooks work as root, who sees what every process has open."""


def test_two_cards_are_seen(site):
    cards = site.look().survey["cards"]["nvidia"]
    assert [(card["index"], card["name"], card["health"]) for card in cards] == [
        (0, "NVIDIA GeForce RTX 4090", "ok"),
        (1, "NVIDIA GeForce RTX 4090", "ok"),
    ]


def test_root_sees_who_holds_a_card(site):
    with site.process(["sleep", "600"], user="llm", holds=["/sim/dev/nvidia1"]) as pid:
        cards = site.look().survey["cards"]["nvidia"]
    assert [card["holders"] for card in cards] == [[], [pid]]


def test_a_lost_card_is_told(site):
    site.sim("set", "lost", "--card", "1")
    assert site.look().survey["cards"]["nvidia"][1]["health"] == "lost"
