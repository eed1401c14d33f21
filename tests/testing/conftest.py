"""The mark of tests that take minutes: leave them out with ``-m 'not slow'``."""


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes, as it builds an environment")
