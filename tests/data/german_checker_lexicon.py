"""The words the German checker knows and how they inflect, written by hand and apart from the corpus generator.

Knows words, not sentences. Inflection is tabulated from school grammar: `Noun.forms`, `Determiner.form`, `adjective`
and `VERB_FORMS` give the right forms, and the indexes at the end turn any form, right or wrong in its place, back
into the words it may belong to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

Case = Literal["nom", "acc", "dat", "gen"]
Number = Literal["sg", "pl"]
Gender = Literal["m", "f", "n"]
Slot = Literal["m", "f", "n", "pl"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
SLOTS: tuple[Slot, ...] = ("m", "f", "n", "pl")
NUMBERS: tuple[Number, ...] = ("sg", "pl")


def _table(*rows: str) -> dict[tuple[Slot, Case], str]:
    """Four rows (m, f, n, pl) of four endings (nom, acc, dat, gen); "-" is the empty ending."""
    cells = [row.split() for row in rows]
    return {(s, c): cells[i][j].replace("-", "") for i, s in enumerate(SLOTS) for j, c in enumerate(CASES)}


ARTICLE = _table("der den dem des", "die die der der", "das das dem des", "die die den der")
DER_ENDINGS = _table("er en em es", "e e er er", "es es em es", "e e en er")  # dieser, jeder, welcher
EIN_ENDINGS = _table("- en em es", "e e er er", "- - em es", "e e en er")  # ein, kein, mein
WEAK = _table("e en en en", "e e en en", "e e en en", "en en en en")  # after der-words
MIXED = _table("er en en en", "e e en en", "es es en en", "en en en en")  # after ein-words
STRONG = _table("er en em en", "e e er er", "es es em en", "e e en er")  # after nothing, a number or "viele"
RELATIVE = ARTICLE | {("m", "gen"): "dessen", ("f", "gen"): "deren", ("n", "gen"): "dessen", ("pl", "gen"): "deren"}
RELATIVE = RELATIVE | {("pl", "dat"): "denen"}
ADJECTIVE_ENDINGS = ("e", "er", "es", "em", "en")


@dataclass(frozen=True)
class Noun:
    """A noun: gender, plural ("" for mass nouns and names), kind of thing it names, declension class."""

    lemma: str
    gender: Gender
    plural: str
    kind: str
    is_weak: bool = False

    def forms(self, case: Case, number: Number) -> tuple[str, ...]:
        """The right forms, mostly one: weak nouns take -n outside the nominative, dative plurals take -n."""
        if number == "pl":
            if not self.plural:
                return ()
            return (self.plural + "n" if case == "dat" and self.plural[-1] not in "ns" else self.plural,)
        if self.is_weak and case != "nom":
            return (self.plural,)
        return self.genitives() if case == "gen" else (self.lemma,)

    def genitives(self) -> tuple[str, ...]:
        """The genitive singular: none for feminines, -s after an unstressed syllable, -es after a hiss, else both."""
        if self.gender == "f" or self.kind == "name":
            return (self.lemma,)
        if re.search(r"(s|ß|z|x|sch)$", self.lemma):
            return ("Busses",) if self.lemma == "Bus" else (self.lemma + "es",)
        syllables = len(re.findall(r"[aeiouäöü]+", self.lemma.lower()))
        if self.lemma[-1] in "aeo" or (syllables > 1 and re.search(r"(er|el|en|um|ig|ich)$", self.lemma)):
            return (self.lemma + "s",)
        return (self.lemma + "s", self.lemma + "es")

    def numbers(self, surface: str) -> tuple[Number, ...]:
        """The numbers this form may have in some case."""
        return tuple(n for n in NUMBERS if any(surface in self.forms(c, n) for c in CASES))

    def slot(self, number: Number) -> Slot:
        """The row of the declension tables this noun selects."""
        return "pl" if number == "pl" else self.gender


@dataclass(frozen=True)
class Determiner:
    """An article word: its stem and the two tables that go with it (its own endings, those of the adjective)."""

    lemma: str
    endings: Literal["article", "der", "ein", "none"]
    adjectives: Literal["weak", "mixed", "strong"]
    number: Number | None = None

    def form(self, slot: Slot, case: Case) -> str | None:
        """The right form, or None where the word has none ("ein" in the plural)."""
        if self.number and (slot == "pl") != (self.number == "pl"):
            return None
        if self.endings == "none":
            return self.lemma
        if self.endings == "article":
            return ARTICLE[slot, case]
        ending = (DER_ENDINGS if self.endings == "der" else EIN_ENDINGS)[slot, case]
        stem = "eur" if self.lemma == "euer" and ending else self.lemma
        return stem + ending

    def adjective_ending(self, slot: Slot, case: Case) -> str:
        """The ending an adjective takes after this word; without endings in the plural "ein"-words stay mixed."""
        return {"weak": WEAK, "mixed": MIXED, "strong": STRONG}[self.adjectives][slot, case]


Frame = Literal["none", "acc", "dat", "dat acc", "motion", "placing", "that", "predicate"]
FRAME_CASES: dict[Frame, tuple[Case, ...]] = {
    "none": (),
    "acc": ("acc",),
    "dat": ("dat",),
    "dat acc": ("dat", "acc"),
    "motion": (),
    "placing": ("acc",),
    "that": (),
    "predicate": (),
}


@dataclass(frozen=True)
class Verb:
    """A verb by its principal parts, its auxiliary, what it governs and which kinds of thing its object may be."""

    infinitive: str
    prefix: str
    present: str  # he does; of a separable verb without the prefix
    participle: str
    auxiliary: Literal["haben", "sein", ""]
    frames: tuple[Frame, ...]
    preposition: str
    object_kinds: frozenset[str]


@dataclass(frozen=True)
class VerbForm:
    """One reading of a form: what it is of which verb."""

    verb: Verb
    role: Literal["finite", "participle", "infinitive"]
    persons: frozenset[str] = frozenset()  # of "1sg", "3sg", "1pl", "3pl"
    is_past: bool = False
    is_joined: bool = True  # False: a separable verb that waits for its prefix


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun form: person and number, the cases it may stand in, its gender in the third singular."""

    person: str
    cases: tuple[Case, ...]
    gender: Gender | None = None


NOUN_TABLE: dict[str, str] = {
    "person": """der Mann Männer; die Frau Frauen; das Kind Kinder; der Junge Jungen weak; das Mädchen Mädchen;
        der Lehrer Lehrer; der Arzt Ärzte; der Student Studenten weak; der Freund Freunde; der Nachbar Nachbarn weak;
        die Mutter Mütter; der Vater Väter; die Schwester Schwestern; der Bruder Brüder; die Tante Tanten;
        der Onkel Onkel; die Tochter Töchter; der Sohn Söhne; die Königin Königinnen; der König Könige;
        der Bauer Bauern weak; der Gast Gäste""",
    "animal": """das Tier Tiere; der Hund Hunde; die Katze Katzen; das Pferd Pferde; die Kuh Kühe; der Vogel Vögel;
        die Maus Mäuse; der Löwe Löwen weak; der Bär Bären weak; der Elefant Elefanten weak; der Affe Affen weak;
        das Schwein Schweine; die Ziege Ziegen; der Fuchs Füchse; der Wolf Wölfe; das Kaninchen Kaninchen""",
    "food": """der Apfel Äpfel; der Kuchen Kuchen; das Brötchen Brötchen; die Kartoffel Kartoffeln; die Tomate Tomaten;
        die Wurst Würste; die Kirsche Kirschen; das Brot -; der Käse -; das Fleisch -; die Suppe Suppen""",
    "drink": "der Kaffee -; der Tee -; die Milch -; das Wasser -; das Bier -",
    "building": """das Haus Häuser; die Schule Schulen; die Kirche Kirchen; der Laden Läden; das Hotel Hotels;
        das Museum Museen; das Schloss Schlösser; der Bahnhof Bahnhöfe; die Küche Küchen; das Zimmer Zimmer;
        die Bibliothek Bibliotheken""",
    "area": "der Garten Gärten; der Wald Wälder; der Park Parks; die Stadt Städte; das Dorf Dörfer",
    "way": """die Straße Straßen; der Weg Wege; die Brücke Brücken; der Platz Plätze; das Feld Felder;
        der Fluss Flüsse; die Grenze Grenzen""",
    "furniture": """der Tisch Tische; der Stuhl Stühle; das Bett Betten; das Sofa Sofas; der Teppich Teppiche;
        das Regal Regale; die Bank Bänke""",
    "plant": "der Baum Bäume; die Blume Blumen",
    "thing": """der Ball Bälle; der Schlüssel Schlüssel; die Tasse Tassen; der Teller Teller; das Glas Gläser;
        das Messer Messer; der Löffel Löffel; das Bild Bilder; die Uhr Uhren; das Geschenk Geschenke;
        der Stein Steine; der Korb Körbe; die Puppe Puppen""",
    "opening": """die Tür Türen; das Fenster Fenster; das Tor Tore; die Kiste Kisten; der Koffer Koffer;
        der Schrank Schränke; die Tasche Taschen""",
    "device": """die Lampe Lampen; das Radio Radios; der Computer Computer; der Fernseher Fernseher;
        die Maschine Maschinen; die Kamera Kameras""",
    "vehicle": """das Auto Autos; der Zug Züge; der Bus Busse; das Fahrrad Fahrräder; das Schiff Schiffe;
        die Fähre Fähren; der Lastwagen Lastwagen""",
    "text": """das Buch Bücher; der Brief Briefe; die Zeitung Zeitungen; die Geschichte Geschichten;
        das Gedicht Gedichte; der Roman Romane; die Nachricht Nachrichten""",
    "clothing": """das Hemd Hemden; die Jacke Jacken; der Mantel Mäntel; das Kleid Kleider; der Hut Hüte;
        der Schuh Schuhe; die Bluse Blusen""",
    "name": "die Anna -; die Maria -; die Julia -; der Peter -; der Paul -; der Thomas -",
    "time": """der Tag Tage; der Abend Abende; der Morgen Morgen; die Nacht Nächte; die Woche Wochen; das Jahr Jahre;
        der Montag Montage; der Sonntag Sonntage""",
}

# infinitive (prefix|stem), "he" form, participle, auxiliary, frames joined by "/", preposition of its object or "-",
# kinds of object
VERB_TABLE = """
sehen sieht gesehen haben acc - any
finden findet gefunden haben acc - things animal plant
suchen sucht gesucht haben acc - things animal person plant
verlieren verliert verloren haben acc - portable
hören hört gehört haben acc/that - animal device person vehicle
lieben liebt geliebt haben acc - animal area food person text
brauchen braucht gebraucht haben acc - things plant
kennen kennt gekannt haben acc - area building person text way
kaufen kauft gekauft haben acc - things plant
verkaufen verkauft verkauft haben acc - things plant
stehlen stiehlt gestohlen haben acc - portable
vergessen vergisst vergessen haben acc - portable
tragen trägt getragen haben acc - portable furniture
verstecken versteckt versteckt haben acc - portable
zeichnen zeichnet gezeichnet haben acc - animal building person plant vehicle
essen isst gegessen haben acc - food
trinken trinkt getrunken haben acc - drink
kochen kocht gekocht haben acc - food
lesen liest gelesen haben acc - text
schreiben schreibt geschrieben haben acc - text
verstehen versteht verstanden haben acc - person text
bauen baut gebaut haben acc - building furniture way
überqueren überquert überquert haben acc - way
reparieren repariert repariert haben acc - device opening vehicle
waschen wäscht gewaschen haben acc - clothing vehicle
schieben schiebt geschoben haben acc - furniture vehicle
füttern füttert gefüttert haben acc - animal
fangen fängt gefangen haben acc - animal
besuchen besucht besucht haben acc - area building person
treffen trifft getroffen haben acc - person
fragen fragt gefragt haben acc - person
beobachten beobachtet beobachtet haben acc - animal person
auf|machen macht aufgemacht haben acc - opening
zu|machen macht zugemacht haben acc - opening
an|rufen ruft angerufen haben acc - person
ein|laden lädt eingeladen haben acc - person
ab|holen holt abgeholt haben acc - person
ein|schalten schaltet eingeschaltet haben acc - device
aus|schalten schaltet ausgeschaltet haben acc - device
weg|werfen wirft weggeworfen haben acc - portable
aus|ziehen zieht ausgezogen haben acc - clothing
an|sehen sieht angesehen haben acc - animal building clothing person text thing
mit|bringen bringt mitgebracht haben acc - portable
helfen hilft geholfen haben dat - animal person
danken dankt gedankt haben dat - person
folgen folgt gefolgt sein dat - animal person vehicle
antworten antwortet geantwortet haben dat - person
vertrauen vertraut vertraut haben dat - animal person
zu|hören hört zugehört haben dat - person
geben gibt gegeben haben dat+acc - portable
zeigen zeigt gezeigt haben dat+acc - things animal building plant
schicken schickt geschickt haben dat+acc - portable
leihen leiht geliehen haben dat+acc - portable vehicle
an|bieten bietet angeboten haben dat+acc - portable drink
erzählen erzählt erzählt haben dat+acc - text
sprechen spricht gesprochen haben none über animal area building person text
lachen lacht gelacht haben none über animal clothing person text
nach|denken denkt nachgedacht haben none über animal area building person text
warten wartet gewartet haben none auf animal person text vehicle
träumen träumt geträumt haben none von animal area building person vehicle
schlafen schläft geschlafen haben none -
sitzen sitzt gesessen haben none -
stehen steht gestanden haben none -
spielen spielt gespielt haben none -
arbeiten arbeitet gearbeitet haben none -
singen singt gesungen haben none -
tanzen tanzt getanzt haben none -
weinen weint geweint haben none -
wohnen wohnt gewohnt haben none -
schwimmen schwimmt geschwommen sein none -
auf|wachen wacht aufgewacht sein none -
auf|stehen steht aufgestanden sein none -
ein|schlafen schläft eingeschlafen sein none -
an|kommen kommt angekommen sein none -
zurück|kommen kommt zurückgekommen sein none -
weg|laufen läuft weggelaufen sein none -
gehen geht gegangen sein motion -
kommen kommt gekommen sein motion -
laufen läuft gelaufen sein motion -
springen springt gesprungen sein motion -
fahren fährt gefahren sein motion -
legen legt gelegt haben placing - portable
stellen stellt gestellt haben placing - portable furniture
hängen hängt gehängt haben placing - clothing
sagen sagt gesagt haben that -
denken denkt gedacht haben that -
glauben glaubt geglaubt haben that -
hoffen hofft gehofft haben that -
wissen weiß gewusst haben that -
haben hat gehabt haben acc - things animal plant
sein ist gewesen sein predicate -
"""
KIND_GROUPS = {
    "portable": {"clothing", "device", "food", "plant", "text", "thing"},
    "things": {"clothing", "device", "drink", "food", "furniture", "opening", "text", "thing", "vehicle"},
    "any": {k for k in NOUN_TABLE if k not in ("time", "name")},
}

# infinitive, present and past "he" form; the "I" form is the same
MODALS = {"können": ("kann", "konnte"), "müssen": ("muss", "musste"), "wollen": ("will", "wollte")}

# The kinds of thing each is said of; none where it is said of anything.
ADJECTIVE_TABLE = """
schön; hässlich; groß; klein; lang: clothing furniture text way; kurz: clothing text way; breit: way; schmal: way;
hoch: building; schwer: furniture opening; teuer: clothing device furniture vehicle;
billig: clothing device furniture vehicle; wertvoll: thing; nützlich: device thing; kaputt: device vehicle;
laut: device vehicle; schnell: vehicle; langsam: vehicle; modern: building device; dunkel: area building;
leer: building opening; warm: clothing; schmutzig: building clothing thing vehicle; sauber: building clothing thing;
nass: clothing; interessant: text; langweilig: text; spannend: text; lecker: food; süß: drink food;
frisch: drink food; heiß: drink food; kalt: drink food; bitter: drink; gefährlich: animal way; ruhig: area;
müde: animal person; hungrig: animal person; durstig: animal person; krank: animal person; stark: animal person;
schwach: animal person; mutig: animal person; faul: animal person; klug: animal person; nervös: animal person;
neugierig: animal person; traurig: animal person; jung: animal person; wild: animal; glücklich: person;
freundlich: person; reich: person; arm: person; berühmt: building person text; alt;
neu: building clothing device furniture opening text thing vehicle;
rot: clothing plant vehicle; blau: clothing vehicle; grün: clothing furniture plant; schwarz: animal clothing;
weiß: animal clothing; letzt; nächst
"""
ADJECTIVE_STEMS = {"hoch": "hoh", "teuer": "teur", "dunkel": "dunkl", "müde": "müd"}

ADVERBS = {
    "time": ("heute", "gestern", "morgen", "jetzt", "bald"),
    "frequency": ("oft", "immer", "manchmal", "nie", "selten"),
    "manner": ("schnell", "langsam", "leise", "laut", "vorsichtig", "allein"),
    "place": ("hier", "dort", "draußen"),
    "comment": ("vielleicht", "leider", "natürlich"),
}
PREPOSITIONS: dict[str, tuple[Case, ...]] = {
    "in": ("acc", "dat"),
    "auf": ("acc", "dat"),
    "unter": ("acc", "dat"),
    "hinter": ("acc", "dat"),
    "neben": ("acc", "dat"),
    "vor": ("acc", "dat"),
    "über": ("acc", "dat"),
    "an": ("acc", "dat"),
    "zu": ("dat",),
    "aus": ("dat",),
    "mit": ("dat",),
    "von": ("dat",),
    "durch": ("acc",),
    "um": ("acc",),
    "ohne": ("acc",),
    "für": ("acc",),
}
CONTRACTIONS = {
    "im": ("in", "dem"),
    "ins": ("in", "das"),
    "am": ("an", "dem"),
    "zum": ("zu", "dem"),
    "zur": ("zu", "der"),
    "vom": ("von", "dem"),
}
SUBORDINATORS = ("weil", "obwohl", "wenn", "als", "bevor", "während", "dass")
PRONOUNS = {
    "ich": Pronoun("1sg", ("nom",)),
    "mich": Pronoun("1sg", ("acc",)),
    "mir": Pronoun("1sg", ("dat",)),
    "er": Pronoun("3sg", ("nom",), "m"),
    "ihn": Pronoun("3sg", ("acc",), "m"),
    "ihm": Pronoun("3sg", ("dat",)),
    "es": Pronoun("3sg", ("nom", "acc"), "n"),
    "sie": Pronoun("3", ("nom", "acc"), "f"),
    "ihr": Pronoun("3sg", ("dat",)),
    "wir": Pronoun("1pl", ("nom",)),
    "uns": Pronoun("1pl", ("acc", "dat")),
    "ihnen": Pronoun("3pl", ("dat",)),
}
_DETERMINERS = (
    Determiner("der", "article", "weak"),
    Determiner("dies", "der", "weak"),
    Determiner("jed", "der", "weak", "sg"),
    Determiner("all", "der", "weak", "pl"),
    Determiner("viel", "der", "strong", "pl"),
    Determiner("einig", "der", "strong", "pl"),
    Determiner("ein", "ein", "mixed", "sg"),
    Determiner("zwei", "none", "strong", "pl"),
    Determiner("drei", "none", "strong", "pl"),
    *(Determiner(lemma, "ein", "mixed") for lemma in ("kein", "mein", "sein", "ihr", "unser")),
)


def _nouns() -> dict[str, list[Noun]]:
    index: dict[str, list[Noun]] = defaultdict(list)
    genders: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}
    for kind, table in NOUN_TABLE.items():
        for entry in table.split(";"):
            article, lemma, plural, *weak = entry.split()
            noun = Noun(lemma, genders[article], plural.replace("-", ""), kind, bool(weak))
            for form in {form for case in CASES for number in NUMBERS for form in noun.forms(case, number)}:
                index[form].append(noun)
    return dict(index)


def _determiners() -> dict[str, Determiner]:
    forms = ((word, word.form(slot, case)) for word in _DETERMINERS for slot in SLOTS for case in CASES)
    return {form: word for word, form in forms if form}


def _adjectives() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Every inflected form with the word it belongs to, and every word with the kinds of thing it fits."""
    forms: dict[str, str] = {}
    kinds: dict[str, frozenset[str]] = {}
    for entry in ADJECTIVE_TABLE.split(";"):
        word, _, fits = (part.strip() for part in entry.partition(":"))
        kinds[word] = frozenset(fits.split())
        forms |= {ADJECTIVE_STEMS.get(word, word) + ending: word for ending in ADJECTIVE_ENDINGS}
    return forms, kinds


def _verb(row: str) -> Verb:
    infinitive, present, participle, auxiliary, frames, preposition, *kinds = row.split()
    prefix, _, _ = infinitive.rpartition("|")
    expanded = {k for kind in kinds for k in KIND_GROUPS.get(kind, {kind})}
    typed: list[Frame] = [f for f in FRAME_CASES for code in frames.split("/") if f == code.replace("+", " ")]
    helper: Literal["haben", "sein"] = "sein" if auxiliary == "sein" else "haben"
    word = infinitive.replace("|", "")
    governed = preposition.replace("-", "")
    return Verb(word, prefix, present, participle, helper, tuple(typed), governed, frozenset(expanded))


def _present(verb: Verb) -> dict[str, set[str]]:
    """The finite forms of the present, without the separable prefix, and the persons of each."""
    if verb.infinitive == "sein":
        return {"bin": {"1sg"}, "ist": {"3sg"}, "sind": {"1pl", "3pl"}}
    plural = verb.infinitive.removeprefix(verb.prefix)
    first = "weiß" if verb.infinitive == "wissen" else re.sub(r"e?n$", "", plural) + "e"
    forms: dict[str, set[str]] = defaultdict(set)
    for form, person in ((first, "1sg"), (verb.present, "3sg"), (plural, "1pl"), (plural, "3pl")):
        forms[form].add(person)
    return forms


def _full_verb_forms(verb: Verb) -> list[tuple[str, VerbForm]]:
    forms = [
        (verb.participle, VerbForm(verb, "participle")),
        (verb.infinitive, VerbForm(verb, "infinitive")),
    ]
    for form, persons in _present(verb).items():
        if verb.prefix:
            forms.append((form, VerbForm(verb, "finite", frozenset(persons), is_joined=False)))
        forms.append((verb.prefix + form, VerbForm(verb, "finite", frozenset(persons))))
    return forms


def _helper_forms() -> list[tuple[str, VerbForm]]:
    """werden, the modals and the past of sein and haben."""
    singular, plural = frozenset({"1sg", "3sg"}), frozenset({"1pl", "3pl"})
    future = Verb("werden", "", "wird", "", "", (), "", frozenset())
    forms = [
        ("werde", VerbForm(future, "finite", frozenset({"1sg"}))),
        ("wird", VerbForm(future, "finite", frozenset({"3sg"}))),
        ("werden", VerbForm(future, "finite", plural)),
    ]
    shall = Verb("sollen", "", "soll", "", "", (), "", frozenset())
    forms += [("sollte", VerbForm(shall, "finite", singular)), ("sollten", VerbForm(shall, "finite", plural))]
    for infinitive, (present, past) in MODALS.items():
        modal = Verb(infinitive, "", present, "", "", (), "", frozenset())
        forms += [(present, VerbForm(modal, "finite", singular)), (infinitive, VerbForm(modal, "finite", plural))]
        forms.append((past, VerbForm(modal, "finite", singular, is_past=True)))
        forms.append((past + "n", VerbForm(modal, "finite", plural, is_past=True)))
    for infinitive, past, ending in (("sein", "war", "en"), ("haben", "hatte", "n")):
        forms.append((past, VerbForm(VERBS[infinitive], "finite", singular, is_past=True)))
        forms.append((past + ending, VerbForm(VERBS[infinitive], "finite", plural, is_past=True)))
    return forms


def _verb_forms() -> dict[str, list[VerbForm]]:
    index: dict[str, list[VerbForm]] = defaultdict(list)
    for verb in VERBS.values():
        for form, reading in _full_verb_forms(verb):
            index[form].append(reading)
    for form, reading in _helper_forms():
        index[form].append(reading)
    return dict(index)


NOUNS = _nouns()
DETERMINERS = _determiners()
ADJECTIVES, ADJECTIVE_KINDS = _adjectives()
VERBS = {verb.infinitive: verb for verb in map(_verb, VERB_TABLE.strip().splitlines())}
PREFIXES = {verb.prefix for verb in VERBS.values()} - {""}
VERB_FORMS = _verb_forms()
ADVERB_KINDS = {word: kind for kind, words in ADVERBS.items() for word in words}
