"""`make test-all`: the tests of libraries that cannot be installed beside the others."""

from tools import apart, oldest


def test_every_line_is_a_test_file_and_what_it_needs():
    """Exact versions: what passed once passes again."""
    pins = list(oldest.read(apart.PINS.read_text(encoding="utf-8")))
    assert pins
    for pin in pins:
        assert (apart.ROOT / pin.table).is_file()
        assert all("==" in each for each in pin.requirements)


def test_a_folder_is_used_again_until_its_line_changes(monkeypatch, tmp_path):
    """Nothing is installed a second time."""
    commands = []
    monkeypatch.setattr(apart, "ROOT", tmp_path)

    def demand(command, root):
        commands.append(command)
        (tmp_path / ".venvs/apart/acme==1").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(apart, "demand", demand)
    for requirements in [("acme==1",), ("acme==1",), ("acme==1", "other==2")]:
        assert apart.set_up(requirements) == tmp_path / ".venvs/apart/acme==1"
    assert [command[-1] for command in commands] == ["acme==1", "other==2"]
