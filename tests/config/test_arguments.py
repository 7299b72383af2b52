import argparse

from scaling.config import add_arguments, configs


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return configs(parser.parse_intermixed_args(words))


def test_every_name_is_a_config_and_the_rest_holds_for_all(shelf):
    shelf("one.yaml", "train.batch: 2\ntrain.clip: 3\n")
    shelf("two.yaml", "train.batch: 4\n")
    found = parsed("plain", "size=two", "gated", "--overlay", "one.yaml", "--overlay", "two.yaml", "seed=5")
    assert list(found) == ["plain", "gated"]
    for config in found.values():
        assert config["size.width"] == 1024
        assert config["train.batch"] == 4
        assert config["train.clip"] == 3
        assert config["seed"] == 5


def test_a_model_may_be_named_by_its_key(shelf):
    assert list(parsed("model=plain", "seed=1")) == ["model"]
