"""A finite interpretation of the vocabulary: one concrete state."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

Element = Hashable
Row = tuple[Element, ...]

NO_CONSTANTS: Mapping[str, Element] = {}


@dataclass(frozen=True, slots=True)
class Structure:
    domains: Mapping[str, tuple[Element, ...]]
    """Elements of each sort, by its name."""
    relations: Mapping[str, frozenset[Row]]
    """Members of each relation; a flag that is set has the empty row. What is missing is empty."""
    counters: Mapping[str, int]
    constants: Mapping[str, Element] = field(default_factory=dict)
    """What an action is about."""
    _index: dict[tuple[str, tuple[int, ...]], dict[Row, list[Row]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def changed(
        self,
        relations: Mapping[str, frozenset[Row]],
        counters: Mapping[str, int],
        constants: Mapping[str, Element] = NO_CONSTANTS,
    ) -> "Structure":
        """The same but for these relations and counters, and about something else."""
        kept = {key: index for key, index in self._index.items() if key[0] not in relations}
        return Structure(
            self.domains,
            {**self.relations, **relations},
            {**self.counters, **counters},
            constants,
            kept,
        )

    def rows(self, relation: str) -> frozenset[Row]:
        return self.relations.get(relation, frozenset())

    def matching(self, relation: str, known: Mapping[int, Element]) -> list[Row]:
        """Members of a relation that have these elements at these positions."""
        positions = tuple(sorted(known))
        key = (relation, positions)
        if key not in self._index:
            index: dict[Row, list[Row]] = {}
            for row in self.rows(relation):
                index.setdefault(tuple(row[n] for n in positions), []).append(row)
            self._index[key] = index
        return self._index[key].get(tuple(known[n] for n in positions), [])
