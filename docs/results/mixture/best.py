"""The proportions of the lowest mean loss, by the exponential law of each domain: `python best.py points.csv`."""

import sys

import numpy as np
import pandas as pd

from scaling.laws import fit
from scaling.laws.catalogue import best_mixture
from scaling.laws.points import load_points

points = pd.read_csv(sys.argv[1])


def best(losses):
    laws = []
    for loss in losses:
        table = points[["p_1", "p_2", "seed"]].assign(loss=loss)
        fitted = fit("mixture_exponential_2", load_points(table))
        laws.append((fitted.form, np.array([fitted.estimates[name] for name in fitted.form.parameter_names])))
    predicted = [
        form.predict(theta, {name: points[name].to_numpy() for name in ("p_1", "p_2")}) for form, theta in laws
    ]
    return best_mixture(laws, np.ones(2)), np.array(predicted)


measured = points[["loss_domain_1", "loss_domain_2"]].to_numpy().T
proportions, predicted = best(measured)
ratios = np.log(measured / predicted)
rng = np.random.default_rng(0)
ratios *= np.sqrt(14 / (14 - 3))  # three parameters were fitted to 14 runs of each
draws = [best(predicted * np.exp(ratios[:, rng.integers(0, 14, 14)]))[0][0] for _ in range(200)]
low, high = np.quantile(draws, [0.025, 0.975])
print(f"best p_1 {proportions[0]:.3f}, 95% of 200 draws {low:.3f} to {high:.3f}")
