"""Parts of a page that a program writes, between two marks; everything around them is written by hand and stays."""


def put(page: str, name: str, command: str, text: str) -> str:
    """The page with this text in the section of that name, which comes to the end where there is none yet."""
    begin, end = _marks(name, command)
    section = f"{begin}\n{text}\n{end}\n"
    if begin not in page:
        return f"{page.rstrip()}\n\n{section}"
    before, rest = page.split(begin)
    return before + section + rest.split(f"{end}\n")[1]


def held(page: str, name: str, command: str) -> str | None:
    """What stands in the section of that name; None where there is none."""
    begin, end = _marks(name, command)
    if begin not in page:
        return None
    return page.split(begin)[1].split(end)[0].strip("\n")


def _marks(name: str, command: str) -> tuple[str, str]:
    return f"<!-- {name}: made by {command} -->", f"<!-- end of {name} -->"
