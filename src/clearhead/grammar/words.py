"""Tables of all words except nouns: verbs, adjectives, adverbs, function words.

Adjectives: English, German, kinds of noun they describe; `/` precedes a German stem that differs before endings. The
order of the table is the order of two adjectives before a noun, in both languages.

Verbs, one table for each frame, with columns separated by `;`:

1. English base, past, participle, and a particle (`+up`) or a preposition before the object (`>for`)
2. German infinitive (`|` after a separable prefix), third person singular, participle (`*`: perfect with sein)
3. kinds of subject
4. kinds of object; if nouns of a kind are listed in parentheses, only these are sampled
5. adverbials: m manner, w with somebody, f for somebody, l location, d direction, a place of arrival, h place of
   residence (obligatory); or s for a state verb, which takes no modal, time or frequency
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

# Adjectives of one row cannot describe the same noun.
OPPOSITE_TABLE = """
    beautiful ugly; big small; big narrow; small wide; long short; wide narrow; expensive cheap; fast slow
    dirty clean; interesting boring; exciting boring; hot cold; strong weak; sad happy; rich poor; young old
    old new; old modern; old fresh; sweet bitter; red blue green black white
"""

# English; German; the tenses it can be combined with (r present, p past and perfect, f future).
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
# is sampled with.
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

# English, English plural, German stem, declension of the following adjective, numbers (s, p or sp).
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

# English, German; "when" is translated as "als" in the past.
SUBORDINATOR_TABLE = "because weil; although obwohl; when wenn; if wenn; before bevor; while während"
COORDINATOR_TABLE = "and und; but aber"
INTENSIFIER_TABLE = "very sehr; too zu"


KIND_GROUPS: dict[str, str] = {
    "alive": "person animal",
    "goods": "thing text clothing device vehicle furniture opening food drink plant",
    "small": "thing text clothing food plant device",
    "any": "person animal building area way thing text clothing device vehicle furniture opening food drink plant",
}

VERB_TABLES: dict[str, str] = {
    "accusative": """
        see saw seen; sehen sieht gesehen; alive; any; l
        find found found; finden findet gefunden; alive; goods animal; l
        look looked looked >for; suchen sucht gesucht; alive; goods animal person; l
        lose lost lost; verlieren verliert verloren; person; small; l
        hear heard heard; hören hört gehört; alive; alive vehicle device; l
        love loved loved; lieben liebt geliebt; person; alive food area text; s
        need needed needed; brauchen braucht gebraucht; person; goods; s
        know knew known; kennen kennt gekannt; person; person building area text way; s
        buy bought bought; kaufen kauft gekauft; person; goods; fl
        sell sold sold; verkaufen verkauft verkauft; person; goods; l
        steal stole stolen; stehlen stiehlt gestohlen; alive; small; l
        forget forgot forgotten; vergessen vergisst vergessen; person; small; l
        carry carried carried; tragen trägt getragen; person; small furniture; m
        hide hid hidden; verstecken versteckt versteckt; alive; small; ml
        draw drew drawn; zeichnen zeichnet gezeichnet; person; alive building plant vehicle; mfl
        eat ate eaten; essen isst gegessen; person; food; ml
        drink drank drunk; trinken trinkt getrunken; person; drink; ml
        cook cooked cooked; kochen kocht gekocht; person; food (meat potato sausage soup); mfl
        read read read; lesen liest gelesen; person; text; ml
        write wrote written; schreiben schreibt geschrieben; person; text; mfl
        understand understood understood; verstehen versteht verstanden; person; person text; -
        build built built; bauen baut gebaut; person; building way furniture (bridge path square street); fl
        cross crossed crossed; überqueren überquert überquert; alive; way; mw
        repair repaired repaired; reparieren repariert repariert; person; device vehicle opening; mfl
        wash washed washed; waschen wäscht gewaschen; person; clothing vehicle; ml
        push pushed pushed; schieben schiebt geschoben; person; vehicle furniture; m
        feed fed fed; füttern füttert gefüttert; person; animal; ml
        catch caught caught; fangen fängt gefangen; alive; animal; ml
        visit visited visited; besuchen besucht besucht; person; person building area; w
        meet met met; treffen trifft getroffen; person; person; l
        ask asked asked; fragen fragt gefragt; person; person; m
        watch watched watched; beobachten beobachtet beobachtet; alive; alive; ml
        open opened opened; auf|machen macht aufgemacht; person; opening; mf
        close closed closed; zu|machen macht zugemacht; person; opening; m
        call called called; an|rufen ruft angerufen; person; person; -
        invite invited invited; ein|laden lädt eingeladen; person; person; -
        pick picked picked +up; ab|holen holt abgeholt; person; person; l
        turn turned turned +on; ein|schalten schaltet eingeschaltet; person; device; m
        turn turned turned +off; aus|schalten schaltet ausgeschaltet; person; device; m
        throw threw thrown +away; weg|werfen wirft weggeworfen; person; small; -
        take took taken +off; aus|ziehen zieht ausgezogen; person; clothing; ml
        look looked looked >at; an|sehen sieht angesehen; alive; alive building text clothing thing; m
        bring brought brought +along; mit|bringen bringt mitgebracht; person; small; -
    """,
    "dative": """
        help helped helped; helfen hilft geholfen; person; alive; l
        thank thanked thanked; danken dankt gedankt; person; person; -
        follow followed followed; folgen folgt gefolgt*; alive; alive vehicle; m
        answer answered answered; antworten antwortet geantwortet; person; person; m
        trust trusted trusted; vertrauen vertraut vertraut; person; alive; -
        listen listened listened >to; zu|hören hört zugehört; alive; person; m
    """,
    "ditransitive": """
        give gave given; geben gibt gegeben; person; small; -
        show showed shown; zeigen zeigt gezeigt; person; goods building animal; -
        send sent sent; schicken schickt geschickt; person; small; -
        lend lent lent; leihen leiht geliehen; person; thing text clothing device vehicle; -
        offer offered offered; an|bieten bietet angeboten; person; food drink small; -
        tell told told; erzählen erzählt erzählt; person; text (story); -
    """,
    "über+accusative": """
        talk talked talked >about; sprechen spricht gesprochen; person; person animal building area text; m
        laugh laughed laughed >about; lachen lacht gelacht; person; alive text clothing; m
        think thought thought >about; nach|denken denkt nachgedacht; person; person animal building area text; -
    """,
    "auf+accusative": """
        wait waited waited >for; warten wartet gewartet; alive; person animal vehicle text; -
    """,
    "von+dative": """
        dream dreamed dreamed >of; träumen träumt geträumt; alive; person animal area building vehicle; -
    """,
    "intransitive": """
        sleep slept slept; schlafen schläft geschlafen; alive; -; ml
        wait waited waited; warten wartet gewartet; alive; -; mwl
        sit sat sat; sitzen sitzt gesessen; alive; -; mwl
        stand stood stood; stehen steht gestanden; alive; -; mwl
        play played played; spielen spielt gespielt; alive; -; mwl
        work worked worked; arbeiten arbeitet gearbeitet; person; -; mwl
        sing sang sung; singen singt gesungen; person; -; mwl
        dance danced danced; tanzen tanzt getanzt; person; -; mwl
        laugh laughed laughed; lachen lacht gelacht; person; -; ml
        cry cried cried; weinen weint geweint; person; -; l
        live lived lived; wohnen wohnt gewohnt; person; -; h
        swim swam swum; schwimmen schwimmt geschwommen*; alive; -; mw
        wake woke woken +up; auf|wachen wacht aufgewacht*; alive; -; l
        get got got +up; auf|stehen steht aufgestanden*; person; -; m
        fall fell fallen +asleep; ein|schlafen schläft eingeschlafen*; alive; -; l
        arrive arrived arrived; an|kommen kommt angekommen*; alive vehicle; -; wa
        come came come +back; zurück|kommen kommt zurückgekommen*; alive; -; mw
        run ran run +away; weg|laufen läuft weggelaufen*; alive; -; w
    """,
    "motion": """
        go went gone; gehen geht gegangen*; person; -; mwd
        come came come; kommen kommt gekommen*; alive; -; wd
        run ran run; laufen läuft gelaufen*; alive; -; mwd
        jump jumped jumped; springen springt gesprungen*; alive; -; md
        drive drove driven; fahren fährt gefahren*; person vehicle; -; mwd
    """,
    "placing": """
        put put put; legen legt gelegt; person; small; d
        place placed placed; stellen stellt gestellt; person; thing furniture device plant; d
        hang hung hung; hängen hängt gehängt; person; clothing; d
    """,
    "that": """
        say said said; sagen sagt gesagt; person; -; -
        think thought thought; denken denkt gedacht; person; -; -
        believe believed believed; glauben glaubt geglaubt; person; -; -
        hope hoped hoped; hoffen hofft gehofft; person; -; -
        know knew known; wissen weiß gewusst; person; -; s
        hear heard heard; hören hört gehört; person; -; -
    """,
    "have": """
        have had had; haben hat gehabt; person; goods animal; s
    """,
    "be": """
        be was been; sein ist gewesen*; any; -; l
    """,
}
