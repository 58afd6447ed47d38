"""Lexicon of the grammar: typed entries built once from the tables in `words` and `nouns`."""

from collections.abc import Iterator
from typing import NamedTuple

from clearhead.grammar import words
from clearhead.grammar.nouns import NAMES, NOUN_TABLES
from clearhead.grammar.words import KIND_GROUPS, VERB_TABLES

Kinds = frozenset[str]


class Noun(NamedTuple):
    """Noun; `weak` marks masculines of the weak declension, `mass` nouns without a plural."""

    english: str
    plural: str
    german: str
    gender: str
    german_plural: str
    genitive: str
    weak: bool
    mass: bool
    kind: str


class Verb(NamedTuple):
    """Verb with its frame, the kinds of noun it accepts as subject and object, and the codes of its `adverbials`.

    If `object_names` lists nouns of a kind, only these nouns of that kind are sampled as objects.
    """

    english: str
    past: str
    participle: str
    particle: str
    preposition: str
    infinitive: str
    prefix: str
    third: str
    german_participle: str
    uses_sein: bool
    frame: str
    subjects: Kinds
    objects: Kinds
    object_names: Kinds
    adverbials: str
    stem: str


class Adjective(NamedTuple):
    """Adjective, the stem that takes endings, and the kinds of noun it describes."""

    english: str
    german: str
    inflected: str
    kinds: Kinds
    rank: int


class Adverb(NamedTuple):
    """Fixed adverbial of one or more words; `tenses` contains r (present), p (past), f (future)."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    tenses: str
    role: str
    stem: str


class Preposition(NamedTuple):
    """Preposition; `use` is place (location and direction), location, direction, companion or purpose.

    `fits` contains the kinds and the names of the nouns it is sampled with.
    """

    english: tuple[str, ...]
    german: str
    case: str
    use: str
    fits: Kinds
    stem: str


class Determiner(NamedTuple):
    """Determiner; the empty one (`english` = "") is used with bare plurals and mass nouns."""

    english: str
    plural: str
    german: str
    declension: str
    numbers: str


class PersonalPronoun(NamedTuple):
    """Personal pronoun; `person` is 1s, 3s or p."""

    english: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    person: str


class Modal(NamedTuple):
    """Modal verb; English forms are tuples of words, and an empty past means that the past is not used."""

    english: tuple[str, ...]
    third: tuple[str, ...]
    past: tuple[str, ...]
    infinitive: str
    present: str
    german_past: str


def _rows(table: str, divider: str = "\n") -> Iterator[str]:
    return (row.strip() for row in table.split(divider) if row.strip())


def _kinds(text: str) -> Kinds:
    """Return the kinds in a table cell with groups expanded; `-` denotes an empty set."""
    kinds: set[str] = set()
    for word in text.replace("-", " ").split():
        kinds.update(KIND_GROUPS.get(word, word).split())
    return frozenset(kinds)


def add_s(word: str) -> str:
    """Return the regular English -s form: plural of a noun, third person of a verb."""
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _noun(row: str, kind: str) -> Noun:
    english, plural, german, gender, german_plural, genitive = row.split()
    weak = german_plural.endswith("*")
    german_plural = german_plural.rstrip("*")
    if genitive == "-":
        genitive = german_plural if weak else german
    mass = plural == "!"
    english_plural = "" if mass else add_s(english) if plural == "-" else plural
    return Noun(english, english_plural, german, gender, "" if mass else german_plural, genitive, weak, mass, kind)


def _verb(row: str, frame: str) -> Verb:
    english, german, subjects, objects, adverbials = (part.strip() for part in row.split(";"))
    base, past, participle, *extra = english.split()
    particle = extra[0][1:] if extra and extra[0][0] == "+" else ""
    preposition = extra[0][1:] if extra and extra[0][0] == ">" else ""
    infinitive, third, german_participle = german.split()
    prefix, _, base_infinitive = infinitive.rpartition("|")
    kinds, _, names = objects.partition("(")
    return Verb(
        english=base,
        past=past,
        participle=participle,
        particle=particle,
        preposition=preposition,
        infinitive=base_infinitive,
        prefix=prefix,
        third=third,
        german_participle=german_participle.rstrip("*"),
        uses_sein=german_participle.endswith("*"),
        frame=frame,
        subjects=_kinds(subjects),
        objects=_kinds(kinds),
        object_names=frozenset(names.strip(")").split()),
        adverbials=adverbials,
        stem=" ".join([base, *(word[1:] for word in extra)]),
    )


def _adjective(row: str, rank: int) -> Adjective:
    pair, kinds = row.split(";")
    english, german = pair.split()
    uninflected, _, inflected = german.partition("/")
    return Adjective(english, uninflected, inflected or uninflected.removesuffix("e"), _kinds(kinds), rank)


def _adverb(english: str, german: str, role: str, tenses: str = "rpf") -> Adverb:
    return Adverb(tuple(english.split()), tuple(german.split()), tenses.strip(), role, english.strip())


def _adverbs(table: str, role: str) -> tuple[Adverb, ...]:
    pairs = (row.split() for row in _rows(table, ";"))
    return tuple(_adverb(english, german, role) for english, german in pairs)


def _parts(table: str, divider: str = "\n") -> Iterator[list[str]]:
    return (row.split(";") for row in _rows(table, divider))


def _preposition(row: str) -> Preposition:
    english, german, case, use, fits = (part.strip() for part in row.split(";"))
    return Preposition(tuple(english.split()), german, case, use, frozenset(fits.split()), english)


def _incompatible() -> dict[str, Kinds]:
    """Return for each adjective those that cannot describe the same noun, including itself."""
    incompatible = {adjective.english: {adjective.english} for adjective in ADJECTIVES}
    for row in _rows(words.OPPOSITE_TABLE.replace(";", "\n")):
        for word in row.split():
            incompatible[word].update(row.split())
    return {word: frozenset(others) for word, others in incompatible.items()}


def _modal(row: str) -> Modal:
    english, third, past, infinitive, present, german_past = row.split()

    def forms(part: str) -> tuple[str, ...]:
        return () if part == "-" else tuple(part.split("_"))

    return Modal(forms(english), forms(third), forms(past), infinitive, present, german_past.strip("-"))


NOUNS = tuple(_noun(row, kind) for kind, table in NOUN_TABLES.items() for row in _rows(table))
VERBS = tuple(_verb(row, frame) for frame, table in VERB_TABLES.items() for row in _rows(table))
ADJECTIVES = tuple(_adjective(row, rank) for rank, row in enumerate(_rows(words.ADJECTIVE_TABLE)))
INCOMPATIBLE = _incompatible()
TIMES = tuple(_adverb(part[0], part[1], "time", part[2]) for part in _parts(words.TIME_TABLE))
# The English present perfect excludes these: "has seen yesterday" is ungrammatical.
FINISHED_TIMES = tuple(time for time in TIMES if "p" in time.tenses and "r" not in time.tenses)
FREQUENCIES = _adverbs(words.FREQUENCY_TABLE, "frequency")
MANNERS = _adverbs(words.MANNER_TABLE, "manner")
PLACES = tuple(_adverb(part[0], part[1], "place") for part in _parts(words.PLACE_TABLE, "|"))
COMMENTS = _adverbs(words.COMMENT_TABLE, "comment")
ADVERBS = TIMES + FREQUENCIES + MANNERS + PLACES + COMMENTS
PREPOSITIONS = tuple(_preposition(row) for row in _rows(words.PREPOSITION_TABLE))
DETERMINERS = tuple(Determiner(*row.replace(" - ", "  ").split(" ")) for row in _rows(words.DETERMINER_TABLE))
BARE = Determiner("", "", "", "strong", "p")
PERSONAL_PRONOUNS = tuple(PersonalPronoun(*row.split()) for row in _rows(words.PRONOUN_TABLE))
MODALS = tuple(_modal(row) for row in _rows(words.MODAL_TABLE))
SUBORDINATORS = dict(row.split() for row in _rows(words.SUBORDINATOR_TABLE, ";"))
COORDINATORS = dict(row.split() for row in _rows(words.COORDINATOR_TABLE, ";"))
INTENSIFIERS = dict(row.split() for row in _rows(words.INTENSIFIER_TABLE, ";"))

DETERMINER = {entry.english: entry for entry in (*DETERMINERS, BARE)}
VERBS_BY_FRAME = {frame: tuple(verb for verb in VERBS if verb.frame == frame) for frame in VERB_TABLES}
BE = VERBS_BY_FRAME["be"][0]
HAVE = VERBS_BY_FRAME["have"][0]

FUNCTION_STEMS = ("it", "that", "who", "of", "not", "will")


def stems() -> tuple[str, ...]:
    """Return every English stem once; a verb with its particle is one stem."""
    entries = [entry.english for group in (NOUNS, ADJECTIVES, DETERMINERS, PERSONAL_PRONOUNS) for entry in group]
    entries += [entry.stem for group in (VERBS, ADVERBS, PREPOSITIONS) for entry in group]
    entries += [*NAMES, *(modal.english[0] for modal in MODALS)]
    entries += [*SUBORDINATORS, *COORDINATORS, *INTENSIFIERS, *FUNCTION_STEMS]
    return tuple(dict.fromkeys(entries))


ARTICLES = {"m": "der", "f": "die", "n": "das"}


def _noun_entry(noun: Noun) -> str:
    plural = "no plural" if noun.mass else f"{noun.plural}: {noun.german_plural}"
    genitive = "" if noun.gender == "f" else f", des {noun.genitive}"
    weak = ", weak" if noun.weak else ""
    return f"{noun.english}: {ARTICLES[noun.gender]} {noun.german}{genitive} ({plural}{weak})"


def _verb_entry(verb: Verb) -> str:
    auxiliary = "ist" if verb.uses_sein else "hat"
    prefix = f"{verb.prefix}|" if verb.prefix else ""
    separated = f" {verb.prefix}" if verb.prefix else ""
    arguments = f"; subject {' '.join(sorted(verb.subjects))}"
    if verb.objects:
        arguments += f"; object {' '.join(sorted(verb.objects))}"
    if verb.object_names:
        arguments += f" ({' '.join(sorted(verb.object_names))})"
    forms = f"{prefix}{verb.infinitive}, {verb.third}{separated}, {auxiliary} {verb.german_participle}"
    return f"{verb.stem} ({verb.past}, {verb.participle}): {forms}{arguments}"


def _preposition_entry(preposition: Preposition) -> str:
    return f"{preposition.stem}: {preposition.german} + {preposition.case} ({preposition.use})"


def word_list() -> str:
    """Return the Markdown list in `docs/grammar.md`: every English word with its German lemma, one per line."""
    lines: list[str] = []
    for kind in NOUN_TABLES:
        lines += [f"\n### Nouns: {kind}\n", *(f"- {_noun_entry(noun)}" for noun in NOUNS if noun.kind == kind)]
    for frame, verbs in VERBS_BY_FRAME.items():
        lines += [f"\n### Verbs: {frame}\n", *(f"- {_verb_entry(verb)}" for verb in verbs)]
    lines += ["\n### Adjectives, with the kinds they fit\n"]
    for word in ADJECTIVES:
        stem = "" if word.inflected == word.german.removesuffix("e") else f" ({word.inflected}-)"
        lines.append(f"- {word.english}: {word.german}{stem}; {' '.join(sorted(word.kinds))}")
    lines += ["\n### Adverbials\n"]
    lines += [f"- {word.stem}: {' '.join(word.german)} ({word.role})" for word in ADVERBS]
    lines += ["\n### Prepositions\n", *(f"- {_preposition_entry(entry)}" for entry in PREPOSITIONS)]
    lines += ["\n### Determiners\n"]
    for det in DETERMINERS:
        forms = " / ".join(dict.fromkeys(form for form in (det.english, det.plural) if form))
        lines.append(f"- {forms}: {det.german}-, {det.declension}")
    lines += ["\n### Pronouns, names, modals, conjunctions\n"]
    for entry in PERSONAL_PRONOUNS:
        german = ", ".join((entry.nominative, entry.accusative, entry.dative))
        lines.append(f"- {entry.english} (object: {entry.english_object}): {german}")
    lines.append(f"- names: {', '.join(NAMES)} (same in German, no endings)")
    for modal in MODALS:
        past = f", past {' '.join(modal.past)}: {modal.german_past}" if modal.past else ""
        lines.append(f"- {' '.join(modal.english)}: {modal.infinitive} ({modal.present}){past}")
    conjunctions = {**SUBORDINATORS, **COORDINATORS, **INTENSIFIERS}
    lines += [f"- {source}: {target}" for source, target in conjunctions.items()]
    return "\n".join(lines).strip() + "\n"
