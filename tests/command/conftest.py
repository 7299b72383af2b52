import pytest

from tests.command.fit_tables import columns, write


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "points.csv", columns())
