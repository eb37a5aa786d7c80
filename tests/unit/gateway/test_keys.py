"""API keys of the gateway's clients."""

from hashlib import sha256

import pytest
from modelyard_gateway import keys


def digest(key):
    return sha256(key.encode()).hexdigest()


def test_who_comes_in(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# comment\n\n{digest('one')} the lab\n{digest('two').upper()}\n")
    found = keys.Keys(str(file))
    assert found.name_of(b"Bearer one") == "the lab"
    assert found.name_of(b"bearer two") == f"key-{digest('two')[:8]}"
    for wrong in (b"", b"one", b"Basic one", b"Bearer", b"Bearer ", b"Bearer three", b"Bearer " + digest("one").encode()):
        assert found.name_of(wrong) is None, wrong


def test_the_empty_key_never_opens(tmp_path):
    file = tmp_path / "keys"
    file.write_text(digest(""))
    assert keys.Keys(str(file)).name_of(b"Bearer ") is None


@pytest.mark.parametrize("text", ["", "# none\n", "secret\n", f"{digest('a')[:-1]}\n", f"{digest('a')}name\n"])
def test_a_file_that_is_no_list_of_keys(tmp_path, text):
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(keys.KeysError) as caught:
        keys.Keys(str(file))
    assert "secret" not in str(caught.value) and str(file) in str(caught.value)


def test_a_changed_file_is_read_again_and_a_damaged_one_changes_nothing(tmp_path):
    file = tmp_path / "keys"
    file.write_text(digest("one"))
    found = keys.Keys(str(file))
    assert not found.refresh()
    file.write_text(digest("two") + " second\n")
    assert found.refresh() and found.name_of(b"Bearer two") == "second" and found.name_of(b"Bearer one") is None
    file.write_text("rubbish")
    assert not found.refresh() and "still in use" in found.problem and found.name_of(b"Bearer two") == "second"
    file.unlink()
    assert not found.refresh() and "cannot be read" in found.problem
    file.write_text(digest("three") + " x")
    assert found.refresh() and not found.problem
