"""What a small decoder makes of the synthetic language, through the whole of training."""

import pytest

from scaling.data.synthetic import Synthetic


@pytest.mark.slow
def test_a_decoder_of_two_hundred_thousand_parameters_comes_within_two_percent_of_the_entropy(tmp_path):
    from scaling.config import load
    from scaling.training.experiment import assemble
    from scaling.training.run import train

    size = ["size.width=64", "size.layers=4", "size.heads=4", "size.length=64", "size.vocabulary=65"]
    budget = ["train.tokens=4M", "train.batch=24", "optimizer.lr=1e-2", "schedule.warmup=100"]
    rest = ["data=synthetic", "evaluate.windows=1024", "evaluate.points=1", f"runs={tmp_path / 'runs'}"]
    result = train(assemble(load("decoder", [*size, *budget, *rest])))
    assert result["N"]["total"] < 205_000
    assert result["tokens"] == pytest.approx(4_000_000, rel=0.001)
    assert result["entropy"] == Synthetic().entropy
    # No model beats the law: the excess estimates a divergence.
    assert 0 < result["excess"] < 0.02 * Synthetic().entropy
