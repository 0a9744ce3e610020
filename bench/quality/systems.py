"""The entries of the contest: systems, their configurations, and the sizes of their vocabularies. Free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.train.contenders import OURS, Contender

SYSTEMS = (OURS, "eole", "joeynmt", "transformers")
# The configurations, beside OURS, which is our recipe with the initial weights that the system draws by itself:
OWN = "own"  # what a system's documentation advises for little text
INITIAL = "initial"  # our recipe, with initial weights as large as ours
RECIPE = "multi30k/de_en"
MINUTES = (5.0, 15.0, 45.0)
# transformers documents no training of a translation model from scratch, so it has no recipe of its own.
CONFIGURATIONS = {
    OURS: (OURS,),
    "eole": (OWN, OURS, INITIAL),
    "joeynmt": (OWN, OURS, INITIAL),
    "transformers": (OURS, INITIAL),
}
RECIPE_NAMES = {OWN: "its own recipe", OURS: "our recipe", INITIAL: "our recipe and initial weights"}
VOCABULARIES = {("joeynmt", OWN): 32_000, ("eole", OWN): 10_000}  # eole's quick start names none; 10,000 is usual here
# eole and joeynmt train in one process on the CPU. Two are faster for transformers (`make bench BENCH=train`).
PROCESSES = {OURS: 2, "eole": 1, "joeynmt": 1, "transformers": 2}
CORES = 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One training run of the contest."""

    system: str
    configuration: str

    @property
    def name(self) -> str:
        return f"{self.system}-{self.configuration}"

    @property
    def contender(self) -> Contender:
        processes = PROCESSES[self.system]
        return Contender(name=self.system, processes=processes, threads=CORES // processes)

    @property
    def vocabulary(self) -> int:
        """Size of its shared vocabulary; 0 is that of our recipe."""
        return VOCABULARIES.get((self.system, self.configuration), 0)


def entries(systems: Sequence[str], configurations: Sequence[str] = tuple(RECIPE_NAMES)) -> list[Entry]:
    """Return the training runs of some systems in some configurations, in the order of SYSTEMS."""
    return [
        Entry(system=system, configuration=configuration)
        for system in SYSTEMS
        if system in systems
        for configuration in CONFIGURATIONS[system]
        if configuration in configurations
    ]
