from kafkacore.controller.zookeeper.leadership import Assignment

MANY = 1_000


class Id(int):
    compared = 0

    def __eq__(self, other):
        Id.compared += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def test_reassignment_compares_few_ids_when_its_target_has_many(monkeypatch):
    monkeypatch.setattr(Id, "compared", 0)
    origin, target = (tuple(map(Id, range(first, first + MANY))) for first in (0, MANY))
    becomes = Assignment(origin).reassign_to(target)
    assert Id.compared < MANY
    assert becomes == Assignment(target + origin, adding=target, removing=origin)
