"""Built-in corpus: size, splits, one German translation for each English sentence, alignment, and the pronoun "it"."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from clearhead import grammar
from clearhead.errors import DataError
from clearhead.grammar import lexicon
from clearhead.grammar.examples import is_held_out
from clearhead.grammar.lexicon import word_list
from clearhead.grammar.parser import parse
from clearhead.grammar.realization import RealizedSentence

DOCUMENT = (Path(__file__).parents[2] / "docs" / "grammar.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", DOCUMENT, re.MULTILINE)
VERB_FORMS = ("washes", "washed", "has washed", "will wash", "needs", "needed", "has needed", "will need")
ARTICLES = {"m": "er", "f": "sie", "n": "es"}


@pytest.fixture(scope="module")
def train() -> list[grammar.Example]:
    return list(grammar.generate(12_007, seed=11))


def combinations(example: grammar.Example) -> set[tuple[str, str]]:
    """Return the adjective-noun and verb-object pairs of the parsed example."""
    return set(RealizedSentence(parse(example.source)[0]).combinations)


class TestSize:
    def test_there_are_over_three_hundred_stems(self) -> None:
        assert 300 <= grammar.stem_count() <= 400

    def test_there_are_over_a_thousand_million_pairs(self) -> None:
        assert grammar.pair_count() > 10**9

    def test_the_bound_counts_sentences_of_the_grammar(self) -> None:
        """Enumerate the phrases of two verbs: they are distinct, accepted, and their product is below the bound."""
        articles = ["the", "a", "this", "every", "my", "our", "his", "her", "their"]
        people = [noun.english for noun in lexicon.NOUNS if noun.kind == "person"]
        vehicles = [noun.english for noun in lexicon.NOUNS if noun.kind == "vehicle"]
        moods, looks = ["", "tired ", "old ", "rich "], ["", "fast ", "new ", "red "]
        subjects = {f"{article} {mood}{noun}" for article in articles for mood in moods for noun in people}
        objects = {f"{article} {look}{noun}" for article in articles for look in looks for noun in vehicles}
        assert len(subjects) == len(articles) * len(moods) * len(people)
        assert 2 * len(subjects) * len(objects) < grammar.pair_count()
        for subject, thing, verb in zip(sorted(subjects)[::61], sorted(objects)[::17], VERB_FORMS, strict=False):
            english = re.sub(r"\ba (?=[aeiou])", "an ", f"{subject} {verb} {thing}.")
            assert grammar.translate(english[0].upper() + english[1:]).target

    def test_sentences_are_short_and_long_distances_rare(self, train: list[grammar.Example]) -> None:
        lengths = [len(grammar.split_words(example.source)) for example in train]
        distances = [example.pronoun.distance for example in train if example.pronoun]
        assert 8 < sum(lengths) / len(train) < 12
        assert 0.008 < sum(distance > 15 for distance in distances) / len(train) <= 0.03
        assert 0.08 < len(distances) / len(train) < 0.2

    def test_every_stem_occurs_in_training(self, train: list[grammar.Example]) -> None:
        used = set(itertools.chain.from_iterable(example.stems for example in train))
        assert used == set(lexicon.stems())


class TestGenerate:
    def test_the_seed_determines_the_examples(self) -> None:
        first = list(grammar.generate(53, seed=3))
        assert first == list(grammar.generate(53, seed=3))
        assert first[:17] == list(grammar.generate(17, seed=3))
        assert not set(first) & set(grammar.generate(53, seed=4))

    def test_another_process_generates_the_same(self) -> None:
        code = "from clearhead import grammar; print(*(e.source for e in grammar.generate(29, seed=5)), sep='|')"
        environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        assert process.stdout.strip().split("|") == [example.source for example in grammar.generate(29, seed=5)]

    def test_sentences_are_unique(self, train: list[grammar.Example]) -> None:
        assert len({example.source for example in train}) == len(train)

    def test_generation_is_lazy(self) -> None:
        assert next(grammar.generate(10**12)).source

    def test_examples_are_written_as_json(self) -> None:
        example = next(grammar.generate(1, distance=(7, 7)))
        record = json.loads(json.dumps(example.to_json()))
        assert set(record) == {"source", "target", "alignment", "pronoun", "stems"}
        assert record["pronoun"]["distance"] == 7
        assert tuple(map(tuple, record["alignment"])) == example.alignment

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"pairs": 5, "split": "dev"}, "unknown split 'dev'"),
            ({"pairs": -1}, "0 or more"),
            ({"pairs": 5, "distance": (1, 9)}, "within 2 and 60"),
            ({"pairs": 5, "distance": (30, 61)}, "within 2 and 60"),
            ({"pairs": 5, "distance": (9, 3)}, "smaller number first"),
        ],
    )
    def test_invalid_arguments_are_rejected_at_once(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(DataError, match=message):
            grammar.generate(**arguments)  # type: ignore[arg-type]

    def test_words(self) -> None:
        text = "Der Hund, der müde ist, schläft."
        assert grammar.split_words(text) == ["Der", "Hund", ",", "der", "müde", "ist", ",", "schläft", "."]


class TestSplits:
    def test_splits_share_no_sentence_whatever_the_seed(self, train: list[grammar.Example]) -> None:
        parts = {"train": {example.source for example in train}}
        for split, pairs in (("valid", 401), ("test", 401), ("test_unseen", 401), ("test_pronoun", 101)):
            parts[split] = {example.source for example in grammar.generate(pairs, seed=11, split=split)}
        for one, other in itertools.combinations(parts.values(), 2):
            assert not one & other

    def test_unseen_combinations_do_not_occur_in_other_splits(self, train: list[grammar.Example]) -> None:
        unseen = list(grammar.generate(307, seed=2, split="test_unseen"))
        new = [{pair for pair in combinations(example) if is_held_out(*pair)} for example in unseen]
        assert all(new)
        held_out = set().union(*new)
        stems = {stem for example in train for stem in example.stems}
        assert {stem for pair in held_out for stem in pair} <= stems
        others = itertools.chain(
            train[:1009], *(grammar.generate(211, split=split) for split in ("valid", "test", "test_pronoun"))
        )
        assert not any(combinations(example) & held_out for example in others)

    def test_pronoun_split_spreads_over_all_distances(self) -> None:
        pronouns = [example.pronoun for example in grammar.generate(401, seed=7, split="test_pronoun")]
        distances = Counter(pronoun.distance // 10 for pronoun in pronouns if pronoun)
        assert sum(distances.values()) == 401
        assert min(distances[tens] for tens in range(6)) > 30


class TestTranslate:
    @pytest.mark.parametrize("split", grammar.SPLITS)
    def test_each_english_has_one_german(self, split: str) -> None:
        for example in grammar.generate(150 if split == "test_pronoun" else 503, seed=13, split=split):
            parsed = [RealizedSentence(tree).example() for tree in parse(example.source)]
            assert {reading.target for reading in parsed} == {example.target}
            assert parsed[0].alignment == example.alignment
            assert parsed[0].pronoun == example.pronoun
            assert grammar.translate(example.source).target == example.target

    @pytest.mark.parametrize(("rule", "english", "german"), DOCUMENTED)
    def test_documented_pairs(self, rule: str, english: str, german: str) -> None:
        assert grammar.translate(english).target == german, rule

    def test_the_documented_words_are_the_lexicon(self) -> None:
        assert DOCUMENT.split("<!-- words -->\n")[1] == word_list()

    @pytest.mark.parametrize(
        ("english", "message"),
        [
            ("The zebra sleeps.", "'zebra' \\(word 2 .* is not in the lexicon"),
            ("The dog sleep.", "unexpected 'sleep' \\(word 3"),
            ("The dogs sleeps.", "unexpected 'sleeps'"),
            ("A old dog sleeps.", "unexpected 'old'"),
            ("The dog sleeps", "unexpected 'end of text'"),
            ("", "empty"),
            ("Every dog does not sleep.", "'not' cannot be combined with every"),
            ("The dog sees the cat because it is tired.", "exactly one fitting noun before it, not 2"),
            ("The man sees the woman because it is tired.", "exactly one fitting noun before it, not 0"),
            ("The man read the book.", "unexpected 'read'"),
        ],
    )
    def test_errors_name_the_problem(self, english: str, message: str) -> None:
        with pytest.raises(DataError, match=message):
            grammar.translate(english)


# English words and the German words that they are aligned with.
ALIGNMENTS = [
    ("The dog sleeps.", "The:Der dog:Hund sleeps:schläft .:."),
    ("He saw us.", "He:Er saw:hat+gesehen us:uns .:."),
    ("He has seen us.", "He:Er has:hat seen:gesehen us:uns .:."),
    ("We will call Anna.", "We:Wir will:werden call:anrufen Anna:Anna .:."),
    ("Anna called the man.", "Anna:Anna called:hat+angerufen the:den man:Mann .:."),
    ("Anna picks up the man.", "Anna:Anna picks:holt+ab up:holt+ab the:den man:Mann .:."),
    ("He did not see me.", "He:Er did:hat+nicht not:nicht see:gesehen me:mich .:."),
    ("He does not have a dog.", "He:Er does:hat+keinen not:keinen have:hat a:keinen dog:Hund .:."),
    ("He cannot buy books.", "He:Er cannot:kann+keine buy:kaufen books:Bücher .:."),
    ("She wants to go to the school.", "She:Sie wants:will to:will go:gehen to:zur the:zur school:Schule .:."),
    ("The door of the house is old.", "The:Die door:Tür of:des the:des house:Hauses is:ist old:alt .:."),
    ("They sit in front of a tree.", "They:Sie sit:sitzen in:vor front:vor of:vor a:einem tree:Baum .:."),
    ("On Monday I waited for Paul.", "On:Am+Montag Monday:Am+Montag I:ich waited:habe+gewartet for:auf Paul:Paul .:."),
    ("The bird that he hears sings.", "The:Der bird:Vogel that:den he:er hears:hört sings:singt .:."),
    ("He sleeps, but she works.", "He:Er sleeps:schläft ,:, but:aber she:sie works:arbeitet .:."),
]


class TestAlignment:
    @pytest.mark.parametrize(("english", "expected"), ALIGNMENTS)
    def test_by_hand(self, english: str, expected: str) -> None:
        example = grammar.translate(english)
        source, target = grammar.split_words(example.source), grammar.split_words(example.target)
        aligned = [[target[j] for i, j in example.alignment if i == index] for index in range(len(source))]
        pairs = [f"{word}:{'+'.join(words)}" for word, words in zip(source, aligned, strict=True)]
        assert pairs == expected.split()

    def test_every_word_is_aligned(self, train: list[grammar.Example]) -> None:
        for example in train[:4001]:
            source, target = grammar.split_words(example.source), grammar.split_words(example.target)
            assert {i for i, _ in example.alignment} == set(range(len(source)))
            aligned = {j for _, j in example.alignment}
            assert {word for j, word in enumerate(target) if j not in aligned} <= {","}
            assert list(example.alignment) == sorted(set(example.alignment))
            assert max(aligned) < len(target)


class TestPronoun:
    @pytest.mark.parametrize("distance", [2, 3, 7, 13, 29, 60])
    def test_distance_is_exact(self, distance: int) -> None:
        for example in grammar.generate(11, seed=distance, distance=(distance, distance)):
            assert example.pronoun is not None
            words = grammar.split_words(example.source)
            assert words[example.pronoun.index] == "it"
            assert example.pronoun.index - example.pronoun.antecedent == example.pronoun.distance == distance

    def test_gender_comes_from_the_antecedent(self) -> None:
        seen: Counter[str] = Counter()
        for example in grammar.generate(409, distance=(2, 20)):
            assert example.pronoun is not None
            source, target = grammar.split_words(example.source), grammar.split_words(example.target)
            noun, it = target[example.pronoun.target_antecedent], target[example.pronoun.target_index]
            entry = next(n for n in lexicon.NOUNS if n.english == source[example.pronoun.antecedent])
            assert noun.startswith((entry.german, entry.german_plural)) or noun == entry.genitive
            assert it in {ARTICLES[entry.gender], "ihn" if entry.gender == "m" else ARTICLES[entry.gender]}
            assert (example.pronoun.index, example.pronoun.target_index) in example.alignment
            seen[it] += 1
        assert set(seen) == {"er", "sie", "es", "ihn"}

    @pytest.mark.parametrize(
        ("end", "german"),
        [
            ("it was too tired", "weil es zu müde war"),
            ("it was too wide", "weil sie zu breit war"),
            ("it slept", "weil es geschlafen hat"),
            ("the man wanted to cross it", "weil der Mann sie überqueren wollte"),
            ("we caught it", "weil wir es gefangen haben"),
        ],
    )
    def test_the_selectional_restriction_decides(self, end: str, german: str) -> None:
        example = grammar.translate(f"The animal did not cross the street because {end}.")
        assert example.target == f"Das Tier hat die Straße nicht überquert, {german}."
        assert example.pronoun is not None

    def test_the_antecedent_is_never_a_person(self, train: list[grammar.Example]) -> None:
        people = {noun.english for noun in lexicon.NOUNS if noun.kind == "person"}
        for example in train:
            if example.pronoun:
                assert grammar.split_words(example.source)[example.pronoun.antecedent] not in people
