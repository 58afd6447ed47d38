"""Adjectives, adverbs, prepositions, determiners, pronouns, conjunctions and modals, as tables.

Adjectives: English, German, kinds of noun they fit; a German stem that differs before endings follows a `/`. Their
order is the order in which two of them stand before a noun, in both languages.
"""

ADJECTIVE_TABLE = """
    beautiful schön; any
    ugly hässlich; any
    big groß; any
    small klein; any
    long lang; text way furniture clothing
    short kurz; text way clothing
    wide breit; way
    narrow schmal; way
    high hoch/hoh; building
    heavy schwer; furniture opening
    expensive teuer/teur; clothing device vehicle furniture
    cheap billig; clothing device vehicle furniture
    valuable wertvoll; thing
    useful nützlich; thing device
    broken kaputt; device vehicle
    loud laut; device vehicle
    fast schnell; vehicle
    slow langsam; vehicle
    modern modern; building device
    dark dunkel/dunkl; building area
    empty leer; building opening
    warm warm; clothing
    dirty schmutzig; clothing thing vehicle building
    clean sauber; clothing thing building
    wet nass; clothing
    interesting interessant; text
    boring langweilig; text
    exciting spannend; text
    tasty lecker; food
    sweet süß; food drink
    fresh frisch; food drink
    hot heiß; food drink
    cold kalt; food drink
    bitter bitter; drink
    dangerous gefährlich; way animal
    quiet ruhig; area
    tired müde; person animal
    hungry hungrig; person animal
    thirsty durstig; person animal
    sick krank; person animal
    strong stark; person animal
    weak schwach; person animal
    brave mutig; person animal
    lazy faul; person animal
    clever klug; person animal
    nervous nervös; person animal
    curious neugierig; person animal
    sad traurig; person animal
    wild wild; animal
    happy glücklich; person
    friendly freundlich; person
    rich reich; person
    poor arm; person
    famous berühmt; person building text
    young jung; person animal
    old alt; any
    new neu; building thing text clothing device vehicle furniture opening
    red rot; clothing vehicle plant
    blue blau; clothing vehicle
    green grün; clothing plant furniture
    black schwarz; clothing animal
    white weiß; clothing animal
"""

# Words of which no two are said of the same thing.
OPPOSITE_TABLE = """
    beautiful ugly; big small; big narrow; small wide; long short; wide narrow; expensive cheap; fast slow
    dirty clean; interesting boring; exciting boring; hot cold; strong weak; sad happy; rich poor; young old
    old new; old modern; old fresh; sweet bitter; red blue green black white
"""

# English; German; the tenses it goes with (r present, p past and perfect, f future).
TIME_TABLE = """
    today; heute; rpf
    yesterday; gestern; p
    tomorrow; morgen; f
    now; jetzt; r
    soon; bald; f
    every day; jeden Tag; r
    every evening; jeden Abend; rp
    in the morning; am Morgen; rp
    in the evening; am Abend; rpf
    at night; in der Nacht; rp
    last week; letzte Woche; p
    last year; letztes Jahr; p
    next week; nächste Woche; f
    on Monday; am Montag; pf
    on Sunday; am Sonntag; pf
"""
FREQUENCY_TABLE = "often oft; always immer; sometimes manchmal; never nie; rarely selten"
MANNER_TABLE = """
    quickly schnell; slowly langsam; quietly leise; loudly laut; carefully vorsichtig; alone allein
"""
PLACE_TABLE = "here; hier | there; dort | outside; draußen | at home; zu Hause"
COMMENT_TABLE = "perhaps vielleicht; unfortunately leider; naturally natürlich"

# English; German; case (two-way: dative for a location, accusative for a direction); use; the kinds and nouns that it
# is drawn with.
PREPOSITION_TABLE = """
    in; in; two-way; place; building area suitcase box bag cupboard car
    on; auf; two-way; place; table chair bed sofa carpet shelf bench street path bridge square field
    under; unter; two-way; place; furniture tree
    behind; hinter; two-way; place; building furniture tree vehicle
    next to; neben; two-way; place; building furniture tree vehicle person
    in front of; vor; two-way; place; building tree vehicle
    at; an; dative; location; table window door gate river
    into; in; accusative; direction; building area
    onto; auf; accusative; direction; table chair bed sofa bench street square
    to; zu; dative; direction; building person
    out of; aus; dative; direction; building area
    through; durch; accusative; direction; area building
    around; um; accusative; direction; building furniture tree
    with; mit; dative; companion; person animal
    without; ohne; accusative; companion; person animal
    for; für; accusative; purpose; person animal
"""

# English, English plural, German stem, declension, numbers it goes with (s, p or sp).
DETERMINER_TABLE = """
    the the d weak sp
    a - ein mixed s
    this these dies weak sp
    every - jed weak s
    all all all weak p
    no no kein mixed sp
    my my mein mixed sp
    our our unser mixed sp
    his his sein mixed sp
    her her ihr mixed sp
    their their ihr mixed sp
    two two zwei strong p
    three three drei strong p
    many many viel strong p
    some some einig strong p
"""

# English subject, object; German nominative, accusative, dative; person and number (1s, 3s, p).
PRONOUN_TABLE = """
    I me ich mich mir 1s
    he him er ihn ihm 3s
    she her sie sie ihr 3s
    we us wir uns uns p
    they them sie sie ihnen p
"""

# English base, third person, past; German infinitive, present singular, past singular.
MODAL_TABLE = """
    can can could können kann konnte
    must must had_to müssen muss musste
    want_to wants_to wanted_to wollen will wollte
    should should - sollen sollte -
"""

# English, German; "when" is als in the past.
SUBORDINATOR_TABLE = "because weil; although obwohl; when wenn; if wenn; before bevor; while während"
COORDINATOR_TABLE = "and und; but aber"
INTENSIFIER_TABLE = "very sehr; too zu"
