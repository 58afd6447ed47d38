"""Rules of the German checker: declension of phrases, order and agreement of clauses, reference of pronouns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from .inflection import CASES, FRAME_CASES, NUMBERS, RELATIVE, STRONG, Case, Frame, Number, Verb, VerbForm
from .lexicon import ADJECTIVE_KINDS, ADJECTIVES, DETERMINERS, VERB_FORMS, VERBS
from .syntax import RULES, Clause, Item, Phrase, Violation
from .words import ADJECTIVE_STEMS, PREPOSITIONS

PLACE: tuple[Case, ...] = ("acc", "dat")  # governed by two-way prepositions
DIRECTIONS = ("zu", "aus", "durch", "um")  # used only with verbs of motion


def fewest(readings: list[list[Violation]]) -> list[Violation]:
    return min(readings, key=lambda found: len(found))


def declension(phrase: Phrase, case: Case, number: Number) -> list[Violation]:
    """Return the violations inside a noun phrase in the given case and number."""
    noun = phrase.noun
    assert noun is not None
    slot, found = noun.slot(number), []
    determiner = DETERMINERS.get(phrase.determiner)
    if determiner and determiner.form(slot, case) != phrase.determiner:
        found.append(Violation("article", phrase.text))
    is_marked = determiner is not None or (noun.kind == "time" and phrase.adjectives)  # "letzte Woche"
    if noun.plural and number == "sg" and not is_marked:
        found.append(Violation("article", f"{phrase.text} without article"))
    ending = determiner.adjective_ending(slot, case) if determiner else STRONG[slot, case]
    for surface in phrase.adjectives:
        word = ADJECTIVES.get(surface, surface)
        if surface != ADJECTIVE_STEMS.get(word, word) + ending:
            found.append(Violation("adjective-ending", phrase.text))
    if phrase.surface not in noun.forms(case, number):
        rule = "weak-noun" if noun.is_weak else {"dat": "dative-plural", "gen": "genitive"}.get(case, "noun-form")
        found.append(Violation(rule, phrase.text))
    if phrase.genitive and not (is_declined(phrase.genitive, "gen") and shows_genitive(phrase.genitive)):
        found.append(Violation("genitive", phrase.genitive.text))
    return found


def shows_genitive(phrase: Phrase) -> bool:
    """Return whether the determiner marks the genitive: "der Junge zwei Gäste" contains none."""
    determiner = DETERMINERS.get(phrase.determiner)
    return determiner is not None and determiner.endings != "none"


def is_declined(phrase: Phrase, case: Case) -> bool:
    return any(not declension(phrase, case, number) for number in numbers_of(phrase))


def numbers_of(phrase: Phrase) -> tuple[Number, ...]:
    """Return the numbers to try; after an article also those that the form of the noun excludes ("den Vögel")."""
    assert phrase.noun is not None
    possible = phrase.noun.numbers(phrase.surface)
    other = tuple(n for n in NUMBERS if n not in possible and (n == "sg" or phrase.noun.plural))
    return other + possible if phrase.determiner else possible


def in_role(phrase: Phrase, case: Case, number: Number, rule: str) -> list[Violation]:
    """Return the violations of a phrase in a role; `rule` if the phrase would be correct in another case."""
    if phrase.is_relative:
        assert phrase.antecedent is not None and phrase.antecedent.noun is not None
        right = RELATIVE[phrase.antecedent.noun.slot(number), case] == phrase.surface
        return [] if right else [Violation("relative-pronoun", phrase.surface)]
    if phrase.pronoun:
        return [] if case in phrase.pronoun.cases else [Violation(rule, phrase.surface)]
    found = declension(phrase, case, number)
    if found and any(not declension(phrase, other, number) for other in CASES[:3]):
        found = [Violation(rule, phrase.text)]
    if phrase.conjunct:
        numbers = numbers_of(phrase.conjunct)
        found += fewest([in_role(phrase.conjunct, case, n, rule) for n in numbers])
    return found


def best_number(phrase: Phrase, case: Case, rule: str) -> list[Violation]:
    """Return the fewest violations over the possible numbers of the phrase, and set its number."""
    if phrase.is_relative or phrase.pronoun:
        assert phrase.pronoun or phrase.antecedent
        if phrase.antecedent:
            phrase.number = phrase.antecedent.number
        return in_role(phrase, case, phrase.number, rule)
    options = [(in_role(phrase, case, number, rule), number) for number in numbers_of(phrase)]
    # "dankt den Arzt" has a wrong case rather than a wrong plural
    found, phrase.number = min(options, key=lambda option: (len(option[0]), all(v.rule != rule for v in option[0])))
    return found


def person_of(phrase: Phrase) -> set[str]:
    """Return the possible persons of a subject: "sie" is "she" or "they"."""
    if phrase.pronoun:
        return {"3sg", "3pl"} if phrase.pronoun.person == "3" else {phrase.pronoun.person}
    return {"3pl"} if phrase.conjunct or phrase.number == "pl" else {"3sg"}


@dataclass
class Verbs:
    """Verbs of a clause in one reading."""

    finite: VerbForm
    finite_item: Item
    rest: list[tuple[Item, VerbForm]]

    @property
    def main(self) -> Verb:
        return self.rest[0][1].verb if self.rest else self.finite.verb


class ClauseCheck:
    """Check of one clause, for one reading of its verbs and one frame of the main verb."""

    def __init__(self, clause: Clause, verbs: Verbs, frame: Frame) -> None:
        self.clause = clause
        self.items = clause.items
        self.verbs = verbs
        self.frame = frame
        self.found: list[Violation] = []

    def report(self, rule: str, detail: str) -> None:
        assert rule in RULES
        self.found.append(Violation(rule, detail))

    def run(self) -> list[Violation]:
        self.check_verb_forms()
        self.check_prefix()
        self.check_order()
        self.check_roles()
        self.check_prepositions()
        self.check_opener()
        return self.found

    def check_verb_forms(self) -> None:
        """Check that the finite verb has the non-finite form it requires: participle, infinitive or none."""
        helper, rest = self.verbs.finite.verb, self.verbs.rest
        if len(rest) > 1:
            self.report("verb-form", rest[1][0].words[0])
        is_modal = not helper.auxiliary
        if is_modal and not (rest and rest[0][1].role == "infinitive"):
            self.report("verb-form", f"{self.verbs.finite_item.words[0]} without infinitive")
        elif rest and not is_modal:
            item, form = rest[0]
            if helper.infinitive not in ("haben", "sein") or form.role != "participle" or self.verbs.finite.is_past:
                self.report("verb-form", f"{self.verbs.finite_item.words[0]} with {item.words[0]}")
            elif form.verb.auxiliary != helper.infinitive:
                self.report("auxiliary", f"{helper.infinitive} with {item.words[0]}")

    def check_prefix(self) -> None:
        """Check that a prefix is separate and last in a main clause, and joined to the verb in other clauses."""
        prefixes = [item.words[0] for item in self.items if item.kind == "prefix"]
        finite, is_main = self.verbs.finite, self.clause.kind == "main"
        expected = [finite.verb.prefix] if finite.verb.prefix and is_main else []
        is_misplaced = bool(finite.verb.prefix) and finite.is_joined == is_main
        if prefixes != expected or is_misplaced:
            self.report("prefix", " ".join([self.verbs.finite_item.words[0], *prefixes]))
        elif prefixes and self.items[-1].kind != "prefix":
            self.report("prefix", f"{prefixes[0]} is not last")

    def check_order(self) -> None:
        """Check that the finite verb is second or last, and that other verb forms are at the end."""
        finite_at = self.items.index(self.verbs.finite_item)
        closing = self.items
        if self.clause.kind == "main":
            if finite_at + self.clause.has_clause_in_front != 1:
                self.report("verb-second", self.verbs.finite_item.words[0])
        else:
            if self.items[-1] is not self.verbs.finite_item:
                self.report("verb-last", self.verbs.finite_item.words[0])
            closing = [item for item in self.items if item is not self.verbs.finite_item]
        for item, form in self.verbs.rest[:1]:
            if closing[-1] is not item:
                self.report(f"{form.role}-last", item.words[0])
        for item in self.items:
            if item.kind == "comment" and item is not self.items[0]:
                self.report("middle-field", item.words[0])

    def check_roles(self) -> None:
        """Check number, cases and order of subject and objects, and the agreement of the verb."""
        phrases = [item.phrase for item in self.items if item.kind == "phrase" and item.phrase]
        for item in self.items:
            if item.kind == "time" and item.phrase and not item.preposition:
                self.found += best_number(item.phrase, "acc", "time-case")
        roles: list[tuple[Case, str]] = [("nom", "subject-case")]
        for case in FRAME_CASES[self.frame]:
            roles.append((case, "accusative-object" if case == "acc" else "dative-object"))
        if len(phrases) != len(roles):
            self.found += [Violation("complements", self.verbs.main.infinitive)] * (2 * abs(len(phrases) - len(roles)))
        phrases, roles = phrases[: len(roles)], roles[: len(phrases)]
        best: list[Violation] | None = None
        best_order = roles
        for order in itertools.permutations(roles):
            found = self.read_roles(phrases, list(order))
            if list(order) != roles and self.clause.kind != "relative":  # a relative pronoun comes first in any role
                found.append(Violation("middle-field", " ".join(phrase.text for phrase in phrases)))
            subjects = [phrase for phrase, (case, _) in zip(phrases, order, strict=True) if case == "nom"]
            found += self.middle_field(subjects) + self.negation(subjects)
            if best is None or len(found) < len(best):
                best, best_order = found, list(order)
        self.found += best or []
        self.read_roles(phrases, best_order)  # sets the numbers of the phrases for the best order
        self.check_predicate()

    def read_roles(self, phrases: list[Phrase], roles: list[tuple[Case, str]]) -> list[Violation]:
        found: list[Violation] = []
        for phrase, (case, rule) in zip(phrases, roles, strict=True):
            found += best_number(phrase, case, rule)
            if case == "nom" and not person_of(phrase) & self.verbs.finite.persons:
                found.append(Violation("agreement", f"{phrase.text} {self.verbs.finite_item.words[0]}"))
        return found

    def check_predicate(self) -> None:
        """Check that predicates, that-clauses and goals occur exactly with the verbs that require them."""
        adjectives = [item for item in self.items if item.kind == "adjective"]
        manners = [item for item in self.items if item.kind == "manner"]
        places = [item for item in self.items if item.kind == "place" or PREPOSITIONS.get(item.preposition) == PLACE]
        directions = [item.preposition for item in self.items if item.preposition in DIRECTIONS and item.kind != "time"]
        if directions and self.frame != "motion":
            self.report("complements", f"{directions[0]} with {self.verbs.main.infinitive}")
        if self.frame == "predicate":
            adjectives += manners
            if len(adjectives) != 1 and not (places and not adjectives):
                self.report("complements", f"{len(adjectives)} predicates")
        elif adjectives:
            self.report("complements", adjectives[0].words[-1])
        if (self.frame == "that") != self.clause.has_that_clause:
            self.report("complements", f"{self.verbs.main.infinitive} and dass")
        if self.frame == "placing" and not places:
            self.report("complements", f"{self.verbs.main.infinitive} without place")

    def check_prepositions(self) -> None:
        for item in self.items:
            if item.preposition and item.phrase:
                cases, rule = self.preposition_cases(item)
                self.found += fewest([best_number(item.phrase, case, rule) for case in cases])

    def preposition_cases(self, item: Item) -> tuple[tuple[Case, ...], str]:
        """Return the cases that a preposition governs in this clause, and the rule that defines them."""
        cases, verb = PREPOSITIONS[item.preposition], self.verbs.main
        if len(cases) == 1:
            return cases, "preposition-case"
        if item.preposition == verb.preposition and item.phrase:
            kind = item.phrase.noun.kind if item.phrase.noun else "person"
            is_location = kind not in verb.object_kinds and kind != "name" and item.preposition == "auf"
            return (("dat",) if is_location else ("acc",)), "preposition-case"
        is_fronted = self.clause.kind == "main" and item is self.items[0]
        is_direction = self.frame in ("motion", "placing") and item.kind != "time" and not is_fronted
        return (("acc",) if is_direction else ("dat",)), "two-way-preposition"

    def rank(self, item: Item, subjects: list[Phrase]) -> int:
        """Return the rank of a constituent in the order of the middle field."""
        if item.kind == "phrase":
            assert item.phrase is not None
            if item.phrase.is_relative or any(item.phrase is subject for subject in subjects):
                return 0
            return 1 if item.phrase.pronoun else 4
        if item.kind == "preposition":
            if item.preposition == self.verbs.main.preposition and PREPOSITIONS[item.preposition] != ("dat",):
                return 8 if self.preposition_cases(item)[0] == ("acc",) else 10
            return {"von": 8, "mit": 9, "ohne": 9, "für": 9}.get(item.preposition, 10)
        ranks = {"time": 2, "frequency": 3, "nicht": 6, "manner": 7, "place": 10, "adjective": 11}
        if item.kind == "manner" and self.frame == "predicate":
            return 11
        return ranks.get(item.kind, 12)

    def middle_field(self, subjects: list[Phrase]) -> list[Violation]:
        """Return violations of the order: pronouns, time, frequency, objects, nicht, manner, ..., place, predicate."""
        items = [item for item in self.items if item.kind not in ("verb", "prefix", "comment")]
        if self.clause.kind == "main" and not self.clause.has_clause_in_front:
            items = items[1:]
        found: list[Violation] = []
        for left, right in itertools.pairwise(items):
            if self.rank(left, subjects) > self.rank(right, subjects):
                rule = "negation" if "nicht" in (left.kind, right.kind) else "middle-field"
                found.append(Violation(rule, " ".join(left.words + right.words)))
        return found

    def negation(self, subjects: list[Phrase]) -> list[Violation]:
        """Return violations of: one negation per clause, kein instead of nicht with an indefinite object."""
        words = [word for item in self.items for word in item.words]
        negations = [w for w in words if w in ("nicht", "nie") or w.startswith("kein")]
        found = [Violation("negation", " ".join(negations))] if len(negations) > 1 else []
        phrases = [item.phrase for item in self.items if item.kind == "phrase" and item.phrase]
        objects = [phrase for phrase in phrases if not any(phrase is subject for subject in subjects)]
        last = objects[-1] if objects else None
        if "nicht" in words and last and last.noun and last.noun.kind != "name":
            determiner = DETERMINERS.get(last.determiner)
            if determiner is None or determiner.lemma == "ein":
                found.append(Violation("negation", f"nicht with {last.text}"))
        return found

    def check_opener(self) -> None:
        finite, opener = self.verbs.finite, self.clause.opener
        is_perfect = any(form.role == "participle" for _, form in self.verbs.rest)
        if (opener == "als" and not (finite.is_past or is_perfect)) or (opener == "wenn" and finite.is_past):
            self.report("als-wenn", f"{opener} {self.verbs.finite_item.words[0]}")


def verb_readings(clause: Clause) -> Iterator[Verbs]:
    """Yield every reading of the verbs of a clause with exactly one finite verb."""
    items = [item for item in clause.items if item.kind == "verb"]
    for forms in itertools.product(*(VERB_FORMS[item.words[0]] for item in items)):
        pairs = list(zip(items, forms, strict=True))
        finite = [pair for pair in pairs if pair[1].role == "finite"]
        if len(finite) == 1:
            item, form = finite[0]
            yield Verbs(form, item, [pair for pair in pairs if pair[1].role != "finite"])


def check_clause(clause: Clause) -> tuple[list[Violation], Verbs | None]:
    """Return the fewest violations over the readings of the verbs and the frames of the main verb."""
    best: tuple[list[Violation], Verbs | None] = ([Violation("finite-verb", clause.opener or clause.kind)] * 4, None)
    for verbs in verb_readings(clause):
        for frame in verbs.main.frames or VERBS["sehen"].frames:
            found = ClauseCheck(clause, verbs, frame).run()
            if best[1] is None or len(found) < len(best[0]):
                best = (found, verbs)
    if best[1]:  # set the numbers of the phrases, which belong to the last reading, to those of the best one
        for frame in best[1].main.frames:
            if len(ClauseCheck(clause, best[1], frame).run()) == len(best[0]):
                break
    return best


def candidate_antecedents(clause: Clause) -> list[Phrase]:
    """Return the phrases of a clause that a later er, sie or es can refer to: singular, not a person."""
    found: list[Phrase] = []
    for phrase in (item.phrase for item in clause.items if item.phrase):
        found += [phrase] if phrase.number == "sg" else []
        for further in (phrase.genitive, phrase.conjunct):
            if further and further.noun and further.noun.numbers(further.surface)[0] == "sg":
                found.append(further)
    return [phrase for phrase in found if phrase.noun and phrase.noun.kind not in ("person", "name", "time")]


def of_kinds(phrases: list[Phrase], kinds: frozenset[str]) -> list[Phrase]:
    return [phrase for phrase in phrases if phrase.noun and (not kinds or phrase.noun.kind in kinds)]


def accepted_kinds(phrase: Phrase, clause: Clause, verbs: Verbs) -> frozenset[str]:
    """Return the kinds that the predicate or verb of a pronoun accepts; empty if it accepts all."""
    phrases = [item.phrase for item in clause.items if item.kind == "phrase"]
    if not (phrase is phrases[0] or (phrases[0] and phrases[0].is_relative and phrase is phrases[1])):
        return verbs.main.object_kinds
    if "predicate" not in verbs.main.frames:
        return frozenset({"animal", "person", "vehicle"} if verbs.main in ARRIVING else {"animal", "person"})
    predicates = [item.words[-1] for item in clause.items if item.kind in ("adjective", "manner")]
    return ADJECTIVE_KINDS.get(predicates[0], frozenset()) if predicates else frozenset()


ARRIVING = (VERBS["ankommen"], VERBS["fahren"])  # also accept vehicles as subjects


def check_pronouns(clauses: list[tuple[Clause, Verbs | None]]) -> list[Violation]:
    """Check that er, sie and es, where they cannot refer to a person, have an antecedent of their gender."""
    found: list[Violation] = []
    before: list[Phrase] = []
    for clause, verbs in clauses:
        for phrase in (item.phrase for item in clause.items if item.kind == "phrase" and item.phrase):
            if not (phrase.pronoun and phrase.pronoun.gender and verbs):
                continue
            kinds = accepted_kinds(phrase, clause, verbs)
            is_several = phrase.surface == "sie" and (kinds is verbs.main.object_kinds or "3pl" in verbs.finite.persons)
            may_be_person = not kinds or "person" in kinds or is_several
            needs_antecedent = phrase.surface == "es" or not may_be_person
            genders = {candidate.noun.gender for candidate in of_kinds(before, kinds) if candidate.noun}
            if needs_antecedent and phrase.pronoun.gender not in genders:
                found.append(Violation("pronoun-gender", phrase.surface))
        before += candidate_antecedents(clause)
    return found
