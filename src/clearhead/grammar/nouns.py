"""Table of nouns for each kind (semantic class).

Columns: English, English plural (`-` regular, `!` for a mass noun), German, gender (m, f, n), German plural,
German genitive (`-` for feminines). A German plural that ends in `*` marks a weak masculine: every form except
the nominative singular equals the plural.
"""

NOUN_TABLES: dict[str, str] = {
    "person": """
        man men Mann m Männer Mannes
        woman women Frau f Frauen -
        child children Kind n Kinder Kindes
        boy - Junge m Jungen* -
        girl - Mädchen n Mädchen Mädchens
        teacher - Lehrer m Lehrer Lehrers
        doctor - Arzt m Ärzte Arztes
        student - Student m Studenten* -
        friend - Freund m Freunde Freundes
        neighbour - Nachbar m Nachbarn* -
        mother - Mutter f Mütter -
        father - Vater m Väter Vaters
        sister - Schwester f Schwestern -
        brother - Bruder m Brüder Bruders
        aunt - Tante f Tanten -
        uncle - Onkel m Onkel Onkels
        daughter - Tochter f Töchter -
        son - Sohn m Söhne Sohnes
        queen - Königin f Königinnen -
        king - König m Könige Königs
        farmer - Bauer m Bauern* -
        guest - Gast m Gäste Gastes
    """,
    "animal": """
        animal - Tier n Tiere Tieres
        dog - Hund m Hunde Hundes
        cat - Katze f Katzen -
        horse - Pferd n Pferde Pferdes
        cow - Kuh f Kühe -
        bird - Vogel m Vögel Vogels
        mouse mice Maus f Mäuse -
        lion - Löwe m Löwen* -
        bear - Bär m Bären* -
        elephant - Elefant m Elefanten* -
        monkey - Affe m Affen* -
        pig - Schwein n Schweine Schweines
        goat - Ziege f Ziegen -
        fox - Fuchs m Füchse Fuchses
        wolf wolves Wolf m Wölfe Wolfes
        rabbit - Kaninchen n Kaninchen Kaninchens
    """,
    "food": """
        apple - Apfel m Äpfel Apfels
        cake - Kuchen m Kuchen Kuchens
        roll - Brötchen n Brötchen Brötchens
        potato potatoes Kartoffel f Kartoffeln -
        tomato tomatoes Tomate f Tomaten -
        sausage - Wurst f Würste -
        cherry - Kirsche f Kirschen -
        bread ! Brot n - Brotes
        cheese ! Käse m - Käses
        meat ! Fleisch n - Fleisches
        soup - Suppe f Suppen -
    """,
    "drink": """
        coffee ! Kaffee m - Kaffees
        tea ! Tee m - Tees
        milk ! Milch f - -
        water ! Wasser n - Wassers
        beer ! Bier n - Bieres
    """,
    "building": """
        house - Haus n Häuser Hauses
        school - Schule f Schulen -
        church - Kirche f Kirchen -
        shop - Laden m Läden Ladens
        hotel - Hotel n Hotels Hotels
        museum - Museum n Museen Museums
        castle - Schloss n Schlösser Schlosses
        station - Bahnhof m Bahnhöfe Bahnhofs
        kitchen - Küche f Küchen -
        room - Zimmer n Zimmer Zimmers
        library - Bibliothek f Bibliotheken -
    """,
    "area": """
        garden - Garten m Gärten Gartens
        forest - Wald m Wälder Waldes
        park - Park m Parks Parks
        city - Stadt f Städte -
        village - Dorf n Dörfer Dorfes
    """,
    "way": """
        street - Straße f Straßen -
        path - Weg m Wege Weges
        bridge - Brücke f Brücken -
        square - Platz m Plätze Platzes
        field - Feld n Felder Feldes
        river - Fluss m Flüsse Flusses
        border - Grenze f Grenzen -
    """,
    "furniture": """
        table - Tisch m Tische Tisches
        chair - Stuhl m Stühle Stuhles
        bed - Bett n Betten Bettes
        sofa - Sofa n Sofas Sofas
        carpet - Teppich m Teppiche Teppichs
        shelf shelves Regal n Regale Regals
        bench - Bank f Bänke -
    """,
    "plant": """
        tree - Baum m Bäume Baumes
        flower - Blume f Blumen -
    """,
    "thing": """
        ball - Ball m Bälle Balles
        key - Schlüssel m Schlüssel Schlüssels
        cup - Tasse f Tassen -
        plate - Teller m Teller Tellers
        glass - Glas n Gläser Glases
        knife knives Messer n Messer Messers
        spoon - Löffel m Löffel Löffels
        picture - Bild n Bilder Bildes
        clock - Uhr f Uhren -
        gift - Geschenk n Geschenke Geschenks
        stone - Stein m Steine Steines
        basket - Korb m Körbe Korbes
        doll - Puppe f Puppen -
    """,
    "opening": """
        door - Tür f Türen -
        window - Fenster n Fenster Fensters
        gate - Tor n Tore Tores
        box - Kiste f Kisten -
        suitcase - Koffer m Koffer Koffers
        cupboard - Schrank m Schränke Schrankes
        bag - Tasche f Taschen -
    """,
    "device": """
        lamp - Lampe f Lampen -
        radio radios Radio n Radios Radios
        computer - Computer m Computer Computers
        television - Fernseher m Fernseher Fernsehers
        machine - Maschine f Maschinen -
        camera - Kamera f Kameras -
    """,
    "vehicle": """
        car - Auto n Autos Autos
        train - Zug m Züge Zuges
        bus - Bus m Busse Busses
        bicycle - Fahrrad n Fahrräder Fahrrads
        ship - Schiff n Schiffe Schiffes
        ferry - Fähre f Fähren -
        truck - Lastwagen m Lastwagen Lastwagens
    """,
    "text": """
        book - Buch n Bücher Buches
        letter - Brief m Briefe Briefes
        newspaper - Zeitung f Zeitungen -
        story - Geschichte f Geschichten -
        poem - Gedicht n Gedichte Gedichts
        novel - Roman m Romane Romans
        message - Nachricht f Nachrichten -
    """,
    "clothing": """
        shirt - Hemd n Hemden Hemdes
        jacket - Jacke f Jacken -
        coat - Mantel m Mäntel Mantels
        dress - Kleid n Kleider Kleides
        hat - Hut m Hüte Hutes
        shoe - Schuh m Schuhe Schuhs
        blouse - Bluse f Blusen -
    """,
}

NAMES: tuple[str, ...] = ("Anna", "Maria", "Julia", "Peter", "Paul", "Thomas")
