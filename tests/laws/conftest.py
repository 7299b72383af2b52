import pytest

from scaling.laws import fit
from tests.laws.studies import study


@pytest.fixture(scope="session")
def fitted():
    """Forty runs of Chinchilla's law, fitted."""
    return fit("chinchilla", study())
