"""The NamedTuple that costs a start little, beside typing's: the same class for everyone who uses it."""

import copy
import inspect
import pickle
import typing

import pytest

from kafkacore._named_tuple import NamedTuple


class Ours(NamedTuple):
    """Where it is."""

    host: str
    port: int
    rack: str | None = None

    @property
    def address(self):
        return f"{self.host}:{self.port}"


class Twin(typing.NamedTuple):
    host: str
    port: int
    rack: str | None = None


class Empty(NamedTuple):
    pass


CALLS = [
    ((), {"host": "a", "port": 1}),
    (("a", 1), {}),
    (("a",), {"port": 1, "rack": "r"}),
    (("a", 1, "r"), {}),
]
WRONG = [((), {}), (("a",), {}), (("a", 1, "r", 2), {}), (("a", 1), {"host": "b"}), (("a", 1), {"nobody": 1})]


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_is_the_tuple_that_typing_makes(values, named):
    ours, twin = Ours(*values, **named), Twin(*values, **named)
    assert tuple(ours) == tuple(twin)
    assert ours == twin
    assert hash(ours) == hash(twin)
    assert repr(ours) == repr(twin).replace("Twin", "Ours")
    assert ours._asdict() == twin._asdict()
    assert ours._replace(port=2) == twin._replace(port=2)
    assert (ours.host, ours.port, ours.rack) == tuple(twin)


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_refuses_what_typing_refuses_in_the_same_words(values, named):
    with pytest.raises(TypeError) as theirs:
        Twin(*values, **named)
    with pytest.raises(TypeError) as ours:
        Ours(*values, **named)
    assert str(ours.value) == str(theirs.value).replace("Twin", "Ours")


def test_tells_its_fields():
    assert (Ours._fields, Ours._field_defaults, Ours.__match_args__) == (
        Twin._fields,
        Twin._field_defaults,
        Twin.__match_args__,
    )
    assert list(inspect.signature(Ours).parameters) == ["host", "port", "rack"]
    assert Ours.__doc__ == "Where it is."
    assert Ours("a", 1).address == "a:1"
    assert Empty() == ()


def test_keeps_its_class_when_copied():
    made = Ours("a", 1)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), Ours._make(["a", 1, None])):
        assert type(again) is Ours
        assert again == made


def test_holds_nothing_but_its_fields():
    made = Ours("a", 1)
    with pytest.raises(AttributeError):
        made.port = 2
    with pytest.raises(AttributeError):
        made.other = 2
    with pytest.raises(ValueError, match="nobody"):
        made._replace(nobody=1)
    with pytest.raises(TypeError):
        Ours._make(["a", 1])


def test_a_field_without_default_after_one_that_has_it_is_refused():
    with pytest.raises(TypeError, match="default"):

        class _Wrong(NamedTuple):
            rack: str = ""
            host: str
