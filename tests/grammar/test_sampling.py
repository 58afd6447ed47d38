"""Plausibility of sampled sentences: one negation, one time, no contradiction; and termination of sampling."""

import re

import pytest

from clearhead import grammar
from clearhead.errors import DataError
from clearhead.grammar.realization import RealizedSentence
from clearhead.grammar.sentence_sampler import SentenceSampler
from clearhead.grammar.syntax import (
    Clause,
    Coordination,
    It,
    Nominal,
    NounPhrase,
    PrepositionPhrase,
    Sentence,
    all_clauses,
)

OPPOSITES = "beautiful ugly;big small;long short;hot cold;strong weak;sad happy;rich poor;young old;old new;black white"
CONTAINERS = {"suitcase", "box", "bag", "cupboard"}
BUILDABLE = {"building", "furniture"}


@pytest.fixture(scope="module")
def trees() -> list[Sentence]:
    sampler = SentenceSampler("sense")
    sentences = [sampler.sentence() for _ in range(6_007)]
    return sentences + [sampler.pronoun_sentence(distance) for distance in range(2, 41) for _ in range(3)]


def time_of(clause: Clause) -> str:
    return "past" if clause.tense in ("past", "perfect") else "present"


def adjectives_of(item: Nominal) -> set[str]:
    phrase = item.antecedent if isinstance(item, It) else item
    return {adjective.english for adjective in phrase.adjectives} if isinstance(phrase, NounPhrase) else set()


def location_noun(clause: Clause) -> str:
    for place in (clause.place, clause.front):
        if isinstance(place, PrepositionPhrase) and isinstance(place.nominal, NounPhrase):
            return place.nominal.noun.english
    return ""


def english_of(tree: Sentence) -> str:
    return RealizedSentence(tree).source


class TestPlausibility:
    def test_clauses_of_a_sentence_have_one_time(self, trees: list[Sentence]) -> None:
        for tree in trees:
            others = [part.clause for part in (*tree.conjuncts, tree.before, tree.after) if part]
            part = tree.before or tree.after
            for clause in others:
                is_reason = part is not None and part.conjunction in ("because", "although")
                is_consistent = time_of(clause) == time_of(tree.main) or (is_reason and clause.tense == "perfect")
                assert is_consistent, english_of(tree)
            if tree.main.that and time_of(tree.main) == "past":
                assert tree.main.that.tense == "past", english_of(tree)
            if tree.main.that and time_of(tree.main) == "present":
                assert tree.main.that.tense != "past", english_of(tree)

    def test_timed_conjunctions_have_no_perfect(self, trees: list[Sentence]) -> None:
        for tree in trees:
            part = tree.before or tree.after
            if part and part.conjunction not in ("because", "although"):
                main = tree.conjuncts[-1].clause if tree.conjuncts else tree.main
                assert "perfect" not in (part.clause.tense, main.tense), english_of(tree)

    def test_nothing_is_contradicted_or_repeated(self, trees: list[Sentence]) -> None:
        pairs = [set(pair.split()) for pair in OPPOSITES.split(";")]
        for tree in trees:
            for clause in all_clauses(tree):
                of_subject = adjectives_of(clause.subject)
                if clause.predicate:
                    assert clause.predicate.adjective.english not in of_subject, english_of(tree)
                    of_subject |= {clause.predicate.adjective.english}
                for adjectives in (of_subject, adjectives_of(clause.direct) if clause.direct else set()):
                    assert not any(pair <= adjectives for pair in pairs), english_of(tree)

    def test_verbs_have_plausible_complements(self, trees: list[Sentence]) -> None:
        for tree in trees:
            for clause in all_clauses(tree):
                verb, direct = clause.verb.stem, clause.direct
                noun = direct.noun if isinstance(direct, NounPhrase) else None
                if verb == "live":
                    assert clause.place, english_of(tree)
                if noun and verb == "tell":
                    assert noun.english == "story"
                if noun and verb == "cook":
                    assert noun.english in ("soup", "meat", "potato", "sausage")
                if noun and verb == "build":
                    assert noun.kind in BUILDABLE or noun.english in ("street", "path", "bridge", "square")
                if verb in ("need", "know", "love", "have"):
                    assert not (clause.modal or clause.time or clause.frequency), english_of(tree)
                if verb in ("come back", "arrive", "run away"):
                    assert not isinstance(clause.front, PrepositionPhrase), english_of(tree)

    def test_persons_and_animals_are_not_in_containers(self, trees: list[Sentence]) -> None:
        for tree in trees:
            for clause in all_clauses(tree):
                is_scene = clause.verb.frame != "placing" and location_noun(clause) in CONTAINERS
                if is_scene and clause.verb.stem != "be":
                    assert clause.direct is not None, english_of(tree)
                if is_scene and isinstance(clause.subject, NounPhrase) and clause.verb.stem == "be":
                    assert clause.subject.noun.kind not in ("person", "animal"), english_of(tree)

    def test_coordinations_and_first_persons(self, trees: list[Sentence]) -> None:
        for tree in trees:
            assert not re.search(r"\b(I|we) [^,.]*\b(me|us)\b", single_clause_text(tree)), english_of(tree)
            for clause in all_clauses(tree):
                for item in (clause.subject, clause.direct):
                    if isinstance(item, Coordination):
                        assert bool(item.first.determiner.english) == bool(item.second.determiner.english)

    def test_kein_has_no_manner(self, trees: list[Sentence]) -> None:
        for tree in trees:
            for clause in all_clauses(tree):
                name = clause.direct.determiner.english if isinstance(clause.direct, NounPhrase) else "the"
                if name == "no" or (clause.is_negated and name in ("", "a") and "+" not in clause.verb.frame):
                    assert not clause.manner, english_of(tree)

    def test_object_negated_by_kein_is_no_antecedent(self) -> None:
        for example in grammar.generate(3_001, seed=23):
            if example.pronoun:
                words = grammar.split_words(example.target)
                assert not words[example.pronoun.target_antecedent - 1].lower().startswith("kein"), example.target


def single_clause_text(tree: Sentence) -> str:
    """Return the English of a sentence with a single clause, "" for all others."""
    has_one = not (tree.conjuncts or tree.before or tree.after or tree.main.that)
    return RealizedSentence(tree).source if has_one and len(list(all_clauses(tree))) == 1 else ""


class TestRejected:
    @pytest.mark.parametrize(
        ("english", "message"),
        [
            ("No old camera was never too cheap.", "two of 'no', 'never' and 'not'"),
            ("No dog sees no cat.", "two of 'no', 'never' and 'not'"),
            ("The dog does not sleep in no house.", "two of 'no', 'never' and 'not'"),
            ("Yesterday a friend has slept.", "a past time"),
            ("The fox has watched his rabbits on Monday.", "a past time"),
            ("The man did not see a bus because it was slow.", "exactly one fitting noun before it, not 0"),
        ],
    )
    def test_ungrammatical_sentences(self, english: str, message: str) -> None:
        with pytest.raises(DataError, match=message):
            grammar.translate(english)

    def test_object_negated_by_kein_leaves_the_subject_as_antecedent(self) -> None:
        example = grammar.translate("The dog did not see a cat because it was tired.")
        assert example.target == "Der Hund hat keine Katze gesehen, weil er müde war."


class TestTermination:
    @pytest.mark.parametrize("distance", [None, (2, 9)])
    def test_unsuccessful_sampling_ends(
        self, monkeypatch: pytest.MonkeyPatch, distance: tuple[int, int] | None
    ) -> None:
        monkeypatch.setattr(grammar, "MAX_DRAWS", 97)
        monkeypatch.setattr(grammar, "assign_split", lambda combinations, has_pronoun, digest: "train")
        with pytest.raises(DataError, match=r"97 draws yielded no new sentence of split 'valid'.* after 0 pairs"):
            next(grammar.generate(1, split="valid", distance=distance))
