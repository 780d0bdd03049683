import pytest

from attnviz.cli import entry as cli


@pytest.fixture
def attnviz(capsys):
    def call(*arguments, code=0):
        assert cli.run([str(argument) for argument in arguments]) == code
        return capsys.readouterr()

    return call
