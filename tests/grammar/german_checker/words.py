"""Word tables of the German checker, written by hand and independently of the tables of the corpus generator."""

from __future__ import annotations

from .inflection import Case, Determiner, Pronoun

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

# Infinitive, third person present and past; the first person is identical.
MODALS = {"können": ("kann", "konnte"), "müssen": ("muss", "musste"), "wollen": ("will", "wollte")}

# Adjectives with the kinds of noun they describe; without kinds, they describe all nouns.
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
DETERMINER_TABLE = (
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
