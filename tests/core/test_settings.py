"""Settings: argument before environment before file; errors name the place and the key."""

import pytest

from seamline.settings import Settings, SettingsError, load_settings


@pytest.fixture
def config(tmp_path):
    """Give a function that writes the file and gives an environment that names it."""

    def write(text):
        path = tmp_path / "my.toml"
        path.write_text(text)
        return {"SEAMLINE_CONFIG": str(path)}

    return write


def test_without_anything_nothing_is_blocked_and_all_is_allowed(tmp_path):
    found = load_settings(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (found.block, found.allow) == ((), None)
    assert found.why_kept_out("anything", "acme") == ""


def test_argument_beats_environment_beats_file(config):
    environment = config('[plugins]\nblock = ["from-file"]\n')
    assert load_settings(environment=environment).block == ("from-file",)
    environment["SEAMLINE_BLOCK"] = "from-environment, and-another"
    found = load_settings(environment=environment)
    assert found.block == ("and-another", "from-environment")
    found = load_settings(block=["from-argument"], environment=environment)
    assert found.block == ("from-argument",)
    assert load_settings(block=[], environment=environment).block == ()


def test_each_key_takes_its_own_first_place(config):
    environment = config('[plugins]\nblock = ["b"]\nallow = ["a"]\n')
    environment["SEAMLINE_ALLOW"] = "c"
    found = load_settings(environment=environment)
    assert (found.block, found.allow) == (("b",), ("c",))
    assert found.block_source.endswith("my.toml")
    assert found.allow_source == "SEAMLINE_ALLOW"


def test_an_empty_variable_counts_as_not_set(config):
    environment = config('[plugins]\nblock = ["b"]\n') | {"SEAMLINE_BLOCK": "  "}
    assert load_settings(environment=environment).block == ("b",)


def test_the_users_folder_is_read_where_no_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    folder = tmp_path / "seamline"
    folder.mkdir()
    (folder / "seamline.toml").write_text('[plugins]\nallow = ["a"]\n')
    found = load_settings(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert found.allow == ("a",)
    monkeypatch.setattr("sys.platform", "win32")
    assert load_settings(environment={"APPDATA": str(tmp_path)}).allow == ("a",)


def test_an_empty_allow_list_allows_nothing():
    assert Settings(allow=()).why_kept_out("anything") != ""


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("[plugins\n", "", "is not TOML"),
        ("[plugin]\n", "plugin", "did you mean 'plugins'"),
        ("plugins = 3\n", "plugins", "must be a table"),
        ('[plugins]\nblok = ["a"]\n', "plugins.blok", "did you mean 'block'"),
        ('[plugins]\nblock = "a"\n', "plugins.block", "must be a list of names"),
        ("[plugins]\nallow = [3]\n", "plugins.allow", "must be a list of names"),
        ('[plugins]\nallow = [""]\n', "plugins.allow", "must be a list of names"),
    ],
)
def test_an_error_names_the_file_and_the_key(config, text, key, says):
    environment = config(text)
    with pytest.raises(SettingsError, match=says) as caught:
        load_settings(environment=environment)
    assert caught.value.place == environment["SEAMLINE_CONFIG"]
    assert caught.value.key == key
    assert str(caught.value).startswith(environment["SEAMLINE_CONFIG"])


def test_a_file_that_is_named_must_exist(tmp_path):
    missing = str(tmp_path / "none.toml")
    with pytest.raises(
        SettingsError, match=r"none\.toml: no such file; SEAMLINE_CONFIG"
    ):
        load_settings(environment={"SEAMLINE_CONFIG": missing})


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(environment={"SEAMLINE_CONFIG": str(tmp_path)})


def test_text_that_is_not_utf_8_is_an_error(tmp_path):
    (tmp_path / "my.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(environment={"SEAMLINE_CONFIG": str(tmp_path / "my.toml")})


def test_a_name_missing_between_commas_is_an_error():
    with pytest.raises(SettingsError, match="SEAMLINE_ALLOW: a name is missing"):
        load_settings(environment={"SEAMLINE_ALLOW": "a,,b"})


def test_text_in_place_of_a_list_is_refused_and_not_read_as_letters():
    with pytest.raises(TypeError, match="not the text 'acme'"):
        load_settings(block="acme")
