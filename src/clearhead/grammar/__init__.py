"""The built-in English-German corpus: sentences made by a grammar, each with its one translation.

Every example carries its gold word alignment and, where it has the pronoun "it", the noun that it stands for. The
English that is accepted, the conventions of the German and the word list are in `docs/grammar.md`.
"""

from collections.abc import Iterator
from itertools import chain

from clearhead.errors import DataError
from clearhead.grammar.collocations import pair_count
from clearhead.grammar.examples import SPLITS, Example, Pronoun, assign_split, has_held_out, split_words, stable_hash
from clearhead.grammar.lexicon import stems
from clearhead.grammar.parser import translate
from clearhead.grammar.realization import RealizedSentence
from clearhead.grammar.sentence_sampler import LONGEST, MAX_DRAWS, SHORTEST, SentenceSampler

__all__ = ["SPLITS", "Example", "Pronoun", "generate", "pair_count", "split_words", "stem_count", "translate"]


def generate(
    pairs: int, seed: int = 0, split: str = "train", distance: tuple[int, int] | None = None
) -> Iterator[Example]:
    """Yield this many different examples of a split, lazily; the same arguments yield the same ones.

    With a distance range (2 to 60) only examples with "it" come, that many words after the noun it stands for.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}.")
    if pairs < 0:
        raise DataError(f"the number of pairs must be 0 or more, not {pairs}.")
    if distance is None and split == "test_pronoun":
        distance = (SHORTEST, LONGEST)
    if distance is not None and not SHORTEST <= distance[0] <= distance[1] <= LONGEST:
        raise DataError(f"a distance range lies within {SHORTEST} and {LONGEST}, low end first; got {distance}.")
    return _generate(pairs, seed, split, distance)


def _generate(pairs: int, seed: int, split: str, distance: tuple[int, int] | None) -> Iterator[Example]:
    sampler = SentenceSampler(f"{split} {seed}", is_unseen=split == "test_unseen")
    seen: set[int] = set()
    while len(seen) < pairs:
        found = _search(sampler, split, distance, seen)
        if found is None:
            at = f" with distances {distance[0]} to {distance[1]}" if distance else ""
            raise DataError(
                f"{MAX_DRAWS:,} draws brought no new sentence of split {split!r}{at} after {len(seen):,} pairs; "
                "ask for fewer pairs or for more distances."
            )
        yield found.example()


def _search(
    sampler: SentenceSampler, split: str, distance: tuple[int, int] | None, seen: set[int]
) -> RealizedSentence | None:
    """The next sentence that belongs to the split and was not seen, which it now is; None if the draws run out."""
    words = sampler.integer(*distance) if distance else None
    has_choice = sampler.has_choice()
    for _ in range(MAX_DRAWS):
        tree = sampler.sentence() if words is None else sampler.try_pronoun(words, has_choice)
        if tree is None:
            continue
        realised = RealizedSentence(tree)
        if has_held_out(realised.combinations) != (split == "test_unseen"):
            continue
        options = [(realised.source, tree)]
        for source, option in (
            options if words is None else chain(options, sampler.variants(tree, realised.source_tokens))
        ):
            digest = stable_hash(source)
            if digest not in seen and assign_split(realised.combinations, realised.has_pronoun(), digest) == split:
                seen.add(digest)
                return realised if option is tree else RealizedSentence(option)
    return None


def stem_count() -> int:
    """How many different English stems the grammar knows."""
    return len(stems())
